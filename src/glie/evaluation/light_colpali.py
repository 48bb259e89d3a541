"""Light-ColPali's fine-tuning at a matched budget: the baseline of appendix C of the paper.

A page's vectors are clustered, without gradient. The normalised means of the clusters are searched.
A LoRA of the whole encoder is trained through that merge, on pairs of a question and the image of
a page that answers it. One adapter serves one k.

    encoder = LightColPali("colpali-v1.3-hf")
    pairs, warnings = image_pairs(glie.evaluation.load("my-set"))
    fine_tune(encoder, pairs, k=4)
    encoder.save("my-adapter")  # later: LightColPali("colpali-v1.3-hf", "my-adapter")
    codes, queries = encoder.codes(images, ids), encoder.encode_queries(texts)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glie.codec.anchors import anchor, merged
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.encoders.retrieval_model import RetrievalModel
from glie.errors import DatasetError, EncoderError, InputError, MissingExtraError
from glie.evaluation.baselines import merge_labels
from glie.evaluation.datasets import Dataset, Picture, left_out
from glie.evaluation.encoded import Encoded
from glie.pages import Floats, Pages
from glie.progress import Progress, ignore
from glie.storage import digest

if TYPE_CHECKING:
    from torch import Tensor

NOTES = "light-colpali.json"
WEIGHTS = "adapter_model.safetensors"
ITEMS_PER_PASS = 8  # images or questions encoded at once


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """The settings. The defaults are those of appendix C; optimizer and learning rate, which it
    does not name, are those of ColPali's recipe, which it follows."""

    rank: int = 32
    alpha: int = 32
    dropout: float = 0.05
    # of every attention with layers of these names: the language model's and, in ColPali, the
    # vision tower's. Together they have the 13.3M parameters that the appendix counts
    layers: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    pairs: int = 4000  # at most, chosen at random
    epochs: int = 5
    steps: int | None = None  # of the optimizer, instead of epochs
    batch: int = 8  # pairs; each page is a negative for the other questions
    accumulation: int = 4  # batches a step
    learning_rate: float = 5e-5  # rises linearly over the warm-up, then falls linearly to 0
    warmup: float = 0.1  # share of the steps
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rank", "alpha", "pairs", "epochs", "steps", "batch", "accumulation"):
            value, least = getattr(self, name), 2 if name in ("pairs", "batch") else 1
            if name == "steps" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(
                    f"{name}: expected a whole number of at least {least}, found {value!r}"
                )
        if not 0 <= self.dropout < 1 or not 0 <= self.warmup < 1:
            raise InputError(
                "dropout and warmup: expected shares of at least 0 and below 1, found "
                f"{self.dropout!r} and {self.warmup!r}"
            )

    def steps_for(self, pairs: int) -> int:
        """The number of steps for so many pairs; an incomplete batch is left out of its epoch."""
        batches = self.epochs * (pairs // min(self.batch, pairs))
        return self.steps or math.ceil(batches / self.accumulation)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate at a step, as a share; the first step is 0."""
        warm = int(self.warmup * steps)
        return min((step + 1) / (warm + 1), (steps - step) / (steps - warm))


@dataclasses.dataclass(frozen=True)
class TuneProgress(Progress):
    """The steps of a fine-tuning."""

    _: dataclasses.KW_ONLY
    loss: float  # of the last step


class Pair(NamedTuple):
    """A question, and the image of a page that answers it."""

    question: str
    image: Picture


def image_pairs(dataset: Dataset | Encoded) -> tuple[list[Pair], list[str]]:
    """Pairs of each question with the image of each page that answers it; and a warning that names
    the pages without an image."""
    if not isinstance(dataset, Dataset):
        raise DatasetError(
            f"{dataset.name}: cached vectors have no images; give the set they were made of"
        )
    answers = [(query, page) for query, pages in dataset.relevant.items() for page in pages]
    pairs = [
        Pair(dataset.queries[query], dataset.images[page])
        for query, page in answers
        if page in dataset.images
    ]
    blind = dict.fromkeys(page for _, page in answers if page not in dataset.images)
    said = left_out(list(blind), "page", "without an image that can be read")
    if not pairs:
        raise DatasetError(f"{dataset.name}: no question that an image answers; {said[0]}")
    return pairs, said


class LightColPali(RetrievalModel):
    """A ColPali or ColQwen2 model of `transformers`, with or without an adapter from `save`.

    `model` is a folder, or a name on the Hugging Face Hub.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        adapter: str | os.PathLike[str] | None = None,
        *,
        device: str | None = None,
    ) -> None:
        check_ready()
        super().__init__(model, device)
        self.notes: dict[str, Any] = {}  # of its fine-tuning
        if adapter is not None:
            self.model, self.notes = _with_adapter(self.model, Path(adapter))
            self.model.to(self.device).eval()

    @property
    def k(self) -> int | None:
        """The budget that the model was fine-tuned for."""
        return self.notes.get("k")

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One (n, D) array a page. A page is a picture, or the path of one."""
        return self._encode(pages, self.page_vectors)

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One (m, D) array a question."""
        if isinstance(texts, str):
            raise InputError("encode_queries: expected a list of texts, found a single string")
        return self._encode(texts, self.query_vectors)

    def codes(self, pages: Sequence[Any], ids: Sequence[str], k: int | None = None) -> Codes:
        """The merged vectors of pages as an index stores them; by default at the budget that the
        model was fine-tuned for."""
        if k is None and self.k is None:
            raise InputError("k: expected a budget, since the model is not fine-tuned for one")
        budget = CodecConfig(k=k or self.k or 0).k
        vectors = Pages(self.encode_pages(pages), ids, normalize=True)
        return anchor(vectors, merged(vectors, budget))

    def _encode(
        self, items: Sequence[Any], vectors_of: Callable[[Sequence[Any]], tuple[Tensor, Tensor]]
    ) -> list[Floats]:
        import torch

        found: list[Floats] = []
        for at in range(0, len(items), ITEMS_PER_PASS):
            with torch.inference_mode():
                vectors, real = vectors_of(items[at : at + ITEMS_PER_PASS])
            found += [rows[mine].cpu().numpy() for rows, mine in zip(vectors, real, strict=True)]
        return found

    def scores(self, questions: Sequence[str], pages: Sequence[Any], k: int) -> Tensor:
        """MaxSim (Q, P) of questions over merged pages, with gradients through the means."""
        from glie.training.losses import best_matches

        tokens, asked = self.query_vectors(questions)
        merged, used = merged_vectors(*self.page_vectors(pages), k)
        best = best_matches(tokens[:, None], merged[None], used)
        return best.masked_fill(~asked[:, None], 0).sum(-1)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the adapter, in peft's format, and the notes of its fine-tuning. Files are written
        beside the folder and renamed into it when all are complete."""
        if not self.notes:
            raise InputError("nothing to save: the model is not fine-tuned")
        place = Path(folder).resolve()
        check_place(place)
        try:
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as made:
                # embeddings are not trained, and checking them for changes could ask the Hub
                self.model.save_pretrained(made, save_embedding_layers=False)
                parts, notes = list(Path(made).iterdir()), Path(made, NOTES)
                notes.write_text("{}", encoding="utf-8")  # an incomplete folder is not loaded
                notes.replace(place / NOTES)
                notes.write_text(json.dumps(self.notes, indent=1), encoding="utf-8")
                for part in (*parts, notes):
                    part.replace(place / part.name)
        except OSError as error:
            raise EncoderError(f"{place}: cannot be written: {error.strerror}") from None


def merged_vectors(vectors: Tensor, real: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The normalised means (B, k, D) of the clusters of pages (B, N, D), and the mask (B, k) of
    clusters that exist. Gradients pass through the means, not through the clustering."""
    import torch

    merged = []
    for page, mine in zip(vectors, real, strict=True):
        rows = page[mine]
        labels = torch.from_numpy(merge_labels(rows.detach().cpu().numpy(), k)).to(rows.device)
        means = [rows[labels == slot].mean(0) for slot in range(int(labels.max()) + 1)]
        merged.append(torch.nn.functional.normalize(torch.stack(means), dim=-1))
    used = torch.tensor([[slot < len(page) for slot in range(k)] for page in merged])
    padded = [torch.nn.functional.pad(page, (0, 0, 0, k - len(page))) for page in merged]
    return torch.stack(padded), used.to(vectors.device)


def fine_tune(
    encoder: LightColPali,
    pairs: Sequence[Pair],
    k: int = 4,
    settings: FineTuning | None = None,
    *,
    seed: int = 0,
    progress: Callable[[TuneProgress], None] = ignore,
) -> list[float]:
    """Train a new LoRA of the encoder through the merge; returns the loss of every step.

    The same inputs, seed and thread count give the same weights. An interrupted run keeps the
    weights so far, and `encoder.notes` say so.
    """
    import torch

    settings = settings or FineTuning()
    CodecConfig(k=k, seed=seed)
    if encoder.notes:
        raise InputError(f"{encoder.name}: it is fine-tuned already; load the model anew")
    rng = np.random.default_rng(seed)
    chosen = [pairs[i] for i in rng.permutation(len(pairs))[: settings.pairs]]
    if len({pair.image for pair in chosen}) < 2:
        raise InputError("pairs: expected at least two pages, since each is a negative of others")
    for image in {pair.image for pair in chosen}:
        image.open()  # find a damaged image now, not after an hour
    batches = _batches(chosen, settings.batch, rng)
    steps = settings.steps_for(len(chosen))
    relevant = set(pairs)
    losses: list[float] = []
    interrupted, began, revision = False, time.perf_counter(), _revision(encoder.model)
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)  # for the initial weights and dropout
        model = encoder.model = _with_lora(encoder.model, settings)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: settings.rate(step, steps)
        )
        model.train()
        try:
            while len(losses) < steps:
                total = 0.0
                for _ in range(settings.accumulation):
                    loss = _loss(encoder, next(batches), relevant, k)
                    torch.autograd.backward(loss / settings.accumulation)
                    total += float(loss.detach())
                torch.nn.utils.clip_grad_norm_(weights, settings.clip)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                losses.append(total / settings.accumulation)
                progress(TuneProgress("steps", len(losses), steps, loss=losses[-1]))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            model.eval()
    encoder.notes = {
        "model": encoder.name,
        "model_revision": revision,
        "k": k,
        "seed": seed,
        "settings": dataclasses.asdict(settings),
        "pairs": len(chosen),
        "parameters": sum(weight.numel() for weight in weights),
        "steps": len(losses),
        "interrupted": interrupted,
        "seconds": round(time.perf_counter() - began, 1),
    }
    return losses


def _loss(encoder: LightColPali, batch: list[Pair], relevant: set[Pair], k: int) -> Tensor:
    import torch

    from glie.training.losses import pairwise_loss

    questions, pages = [pair.question for pair in batch], [pair.image for pair in batch]
    answers = [[Pair(question, page) in relevant for page in pages] for question in questions]
    scores = encoder.scores(questions, pages, k)
    return pairwise_loss(scores, torch.tensor(answers, device=scores.device))


def _batches(pairs: list[Pair], size: int, rng: np.random.Generator) -> Iterator[list[Pair]]:
    """Yield batches forever: each epoch has a new order and no incomplete batch."""
    size = min(size, len(pairs))
    while True:
        order = rng.permutation(len(pairs))
        for at in range(0, len(pairs) - size + 1, size):
            yield [pairs[i] for i in order[at : at + size]]


def check_ready() -> None:
    """Raise unless what fine-tuning needs is installed."""
    try:
        import peft  # noqa: F401
        import PIL  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtraError("fine-tuning a visual encoder", "light-colpali") from None


def check_place(folder: Path) -> None:
    """Make the folder; raise if it holds anything but an adapter."""
    if folder.is_file():
        raise EncoderError(f"{folder}: a file; an adapter is a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise EncoderError(f"{folder}: cannot be written: {error.strerror}") from None
    if names and NOTES not in names:
        raise EncoderError(f"{folder}: not empty and not an adapter; choose another name")


def _with_lora(model: Any, settings: FineTuning) -> Any:
    """The model with a new adapter. Its second matrices are zero: it changes nothing yet."""
    import peft

    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=list(settings.layers),
        ),
    )


def _with_adapter(model: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model with an adapter from `save`, and its notes."""
    import peft

    try:
        notes = json.loads((folder / NOTES).read_text(encoding="utf-8"))
        CodecConfig(k=notes["k"])
    except (OSError, ValueError, KeyError, TypeError):
        raise EncoderError(
            f"{folder}: not an adapter (no readable {NOTES}); `glie light-colpali` makes one"
        ) from None
    if not (folder / WEIGHTS).exists():  # otherwise peft would look for pickled weights
        raise EncoderError(f"{folder}: damaged: {WEIGHTS} is missing")
    if notes.get("model_revision") != _revision(model):
        raise EncoderError(f"{folder}: made for another model, {notes.get('model')!r}")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            return peft.PeftModel.from_pretrained(model, folder), notes
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise EncoderError(f"{folder}: damaged: {reason}") from None


def _revision(model: Any) -> str:
    """A digest of the model's last layer, which our adapters do not change."""
    last = model.get_submodule("embedding_proj_layer").weight.detach().float().cpu().numpy()
    return digest(last.tobytes())
