"""glie in mteb: evaluate any late-interaction model with compressed pages.

model = GlieSearch("vidore/colqwen2-v1.0", bytes_per_page=520)
mteb.evaluate(model, mteb.get_benchmark("ViDoRe(v2)"))
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glie.codec.codec import Codec
from glie.codec.store import codec_digest
from glie.documents import picture_text
from glie.encoders.base import Encoder, Floats, reads
from glie.errors import EncoderError, InputError, MissingExtraError
from glie.index.index import Batch, Index
from glie.pages import Pages, Queries, to_numpy
from glie.storage import digest_of

try:
    import mteb
    from mteb._create_dataloaders import create_dataloader  # as mteb's own search models do
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction
    from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper
    from mteb.types import PromptType
except ImportError:
    raise MissingExtraError("evaluating with mteb", "mteb") from None

if TYPE_CHECKING:
    from datasets import Dataset
    from torch.utils.data import DataLoader

BYTES_PER_PAGE = 520  # the default budget
NOTHING = np.zeros((0, 1), np.float32)  # the vectors of a page without text
PAGES_PER_ENCODE = 256  # 135 MB of float32, of a model that makes a thousand vectors a page


class GlieSearch:
    """A model that mteb can search with (its SearchProtocol): `index` compresses the corpus into a
    glie index, and `search` ranks it in two stages.

    `model` makes the vectors: the name of a late-interaction model that mteb knows, such a model,
    a MultiVectorEncoder of sentence-transformers, or an encoder of glie. `codec`, or
    `bytes_per_page`, says how a page is stored. Indexes go into `folder`, one a corpus, and are
    read from there the next time; without one, into a temporary folder. A corpus that several
    languages or runs share is encoded once. `normalize` accepts models whose vectors are not
    normalised.

    mteb stores results by the model's name, revision and settings, so budgets stay apart.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec | None = None,
        *,
        bytes_per_page: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        shortlist: int | None = None,
        exact: bool | None = None,
        normalize: bool = False,
    ) -> None:
        if codec is not None and bytes_per_page is not None:
            raise InputError("codec, bytes_per_page: give one of them")
        budget = BYTES_PER_PAGE if bytes_per_page is None else bytes_per_page
        self.codec = codec or Codec(bytes_per_page=budget)
        self.model = _mteb_model(model)
        self._how: dict[str, Any] = {"shortlist": shortlist, "exact": exact}
        self._normalize = normalize
        if folder is None:
            folder = tempfile.mkdtemp(prefix="glie-mteb-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = Path(folder)
        self._index: Index | None = None
        self.mteb_model_meta = self._meta()
        # a model without a revision shares its indexes with no other
        unknown = self.mteb_model_meta.revision in (None, "no_revision_available")
        self._only_mine = uuid.uuid4().hex if unknown else ""

    def _meta(self) -> ModelMeta:
        """The model's metadata with glie's settings; mteb tells experiments apart by it."""
        meta, config = self.model.mteb_model_meta, self.codec.config
        kept: dict[str, Any] = {"k": config.k, "dtype": config.dtype}
        if config.bytes_per_page:
            kept = {"bytes_per_page": config.bytes_per_page}
        added = {"glie_codec": codec_digest(self.codec), **kept, **self._how}
        return meta.model_copy(
            update={
                "experiment_kwargs": {
                    **(meta.experiment_kwargs or {}),
                    **{name: value for name, value in added.items() if value is not None},
                },
                "similarity_fn_name": ScoringFunction.MAX_SIM,
                "model_type": ["late-interaction"],
            }
        )

    def index(
        self,
        corpus: Dataset,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None = None,
        **_: Any,
    ) -> None:
        """Compress a corpus, unless its index exists."""
        path = self._folder / f"{self._name_for(corpus, task_metadata.name)}.glie"
        if (path / "manifest.json").exists():
            self._index = Index.open(path)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            # glie may know a model of mteb by another name
            known = self.model.encoder if isinstance(self.model, _GlieModel) else None
            self._index = Index.create(path, self.codec, encoder=known)
        if not len(self._index):  # one commit: all pages are there, or none
            how = task_metadata, hf_split, hf_subset, encode_kwargs, num_proc
            self._index.add(self._batches(corpus, *how))

    def _batches(self, corpus: Dataset, *how: Any) -> Iterator[Batch]:
        for at in range(0, len(corpus), PAGES_PER_ENCODE):
            part = corpus.select(range(at, min(at + PAGES_PER_ENCODE, len(corpus))))
            arrays = dict(
                zip(part["id"], self._encode(part, PromptType.document, *how), strict=True)
            )
            # a page without vectors cannot be found
            names = [name for name, array in arrays.items() if len(array)]
            yield Batch(Pages([arrays[name] for name in names], names, normalize=self._normalize))

    def search(
        self,
        queries: Dataset,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, list[str]] | None = None,
        num_proc: int | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """The best pages for each query with their scores; only those in `top_ranked`, if given."""
        index = self._index
        if index is None:
            raise InputError("search: no corpus is indexed yet; call index first")
        how = task_metadata, hf_split, hf_subset, encode_kwargs, num_proc
        arrays = self._encode(queries, PromptType.query, *how)
        asked = Queries(arrays, list(queries["id"]), normalize=self._normalize)
        if top_ranked is None:
            hits = index.search(asked, top=top_k, **self._how)
        else:
            hits = []
            for place, name in enumerate(asked.ids):
                ids = [page for page in dict.fromkeys(top_ranked.get(name, ())) if page in index]
                one = asked.slice(place, place + 1)
                hits += index.search(one, top=top_k, ids=ids, **self._how)
        return {
            name: dict(zip(found.ids, descending(found.scores), strict=True))
            for name, found in zip(asked.ids, hits, strict=True)
        }

    def _encode(
        self,
        rows: Dataset,
        prompt_type: PromptType,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None,
    ) -> list[Floats]:
        """The vectors of pages or queries, without padding."""
        loader = create_dataloader(
            rows,
            task_metadata=task_metadata,
            prompt_type=prompt_type,
            batch_size=encode_kwargs.get("batch_size", 32),
            num_proc=num_proc,
        )
        found = _encoding_of(self.model)(
            loader,
            task_metadata=task_metadata,
            hf_split=hf_split,
            hf_subset=hf_subset,
            prompt_type=prompt_type,
            **encode_kwargs,
        )
        arrays = [to_numpy(vectors) for vectors in found]
        if any(array.ndim != 2 for array in arrays):
            raise EncoderError(
                f"{self.mteb_model_meta.name}: it gives one vector a page; expected a "
                "late-interaction model, which gives many"
            )
        return [array[array.any(axis=1)] for array in arrays]

    def _name_for(self, corpus: Dataset, task: str) -> str:
        """The name of the index of a corpus, with a digest of all that decides its contents: the
        corpus, the task (which may change the prompt), the model and the codec."""
        digest = digest_of(self._parts(corpus, task), bits=128)
        return re.sub(r"[^\w.-]+", "_", task) + "-" + digest[:16]

    def _parts(self, corpus: Dataset, task: str) -> Iterator[Any]:
        """The parts of that digest, a thousand rows of the corpus at a time."""
        meta = self.model.mteb_model_meta
        made_by = meta.model_name_with_experiment, meta.revision, codec_digest(self.codec)
        for part in (task, *made_by, self._only_mine, self._normalize):
            yield f"{part}\n".encode()
        for table in corpus.with_format("arrow").iter(1000):
            for batch in table.combine_chunks().to_batches():
                yield batch.serialize()


class _GlieModel:
    """An encoder of glie as a model of mteb."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={
                "name": f"glie/{Path(encoder.name).name}",
                "revision": encoder.revision,
                "modalities": ["text", "image"],  # a text encoder gets the text from OCR
                "embed_dim": int(to_numpy(encoder.encode_queries(["a"])[0]).shape[1]),
            }
        )

    def encode(self, inputs: DataLoader[Any], *, prompt_type: PromptType, **_: Any) -> list[Floats]:
        encode = self._queries if prompt_type == PromptType.query else self._pages
        return [array for batch in inputs for array in encode(batch)]

    def _queries(self, batch: Mapping[str, Sequence[Any]]) -> list[Floats]:
        if "text" not in batch:
            raise EncoderError(f"encoder {self.encoder.name!r}: it takes questions in words only")
        return self.encoder.encode_queries(batch["text"])

    def _pages(self, batch: Mapping[str, Sequence[Any]]) -> list[Floats]:
        if reads(self.encoder) == "image":
            if "image" not in batch:
                raise EncoderError(
                    f"encoder {self.encoder.name!r}: it looks at pictures; the task has none"
                )
            return self.encoder.encode_pages(batch["image"])
        texts = batch["text"] if "text" in batch else [picture_text(p) for p in batch["image"]]
        filled = [text for text in texts if text.strip()]
        arrays = iter(self.encoder.encode_pages(filled) if filled else [])
        return [next(arrays) if text.strip() else NOTHING for text in texts]


def _mteb_model(model: Any) -> Any:
    """A model of mteb, from any of the accepted forms."""
    if isinstance(model, str):
        return mteb.get_model(model)
    if hasattr(model, "mteb_model_meta") and _encoding_of(model):
        return model
    if hasattr(model, "encode_pages"):
        return _GlieModel(model)
    if hasattr(model, "encode_document") and hasattr(model, "similarity"):
        return MultiVectorWrapper(model)
    raise InputError(
        "model: expected a model of mteb or its name, a MultiVectorEncoder or an encoder of glie, "
        f"found {type(model).__name__}"
    )


def _encoding_of(model: Any) -> Any:
    """The encoding function of a model of mteb, or None. Late-interaction models have `_encode`,
    since they return arrays of different lengths."""
    return getattr(model, "encode", None) or getattr(model, "_encode", None)


def descending(scores: Iterable[float]) -> list[float]:
    """Strictly falling scores that keep the order of the pages. mteb ranks by score alone and
    breaks ties by id; behind the shortlist a score may also be higher, by rounding.

    >>> descending([2.0, 2.0, 1.0])
    [2.0, 1.9999998807907104, 1.0]
    """
    fallen: list[float] = []
    for score in scores:
        if fallen and score >= fallen[-1]:  # in float32, which trec_eval reads
            score = float(np.nextafter(np.float32(fallen[-1]), np.float32(-np.inf)))
        fallen.append(score)
    return fallen
