"""Late-interaction checkpoints: like ColBERT for text, like ColPali and ColQwen for pictures.

`sentence-transformers` loads them with their prompts, expansions and skip lists. `transformers`
loads those that it does not cover; a model's own code, if it is trusted, loads the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from glie.encoders.base import Floats, Grid
from glie.encoders.batches import BatchEncoder
from glie.encoders.checkpoint import (
    ADAPTER,
    TRUST,
    Checkpoint,
    check_weights,
    is_visual,
    reader_of,
    trusted,
)
from glie.encoders.loading import PILLOW, pick_device, quietly, without_videos
from glie.encoders.retrieval_model import RetrievalModel
from glie.errors import EncoderError, GlieError, MissingExtraError

TEXTS_PER_BATCH, IMAGES_PER_BATCH = 32, 8


def multi_vector_encoder(checkpoint: Checkpoint, device: str | None = None) -> BatchEncoder:
    """The encoder for a checkpoint that `reader_of` recognises."""
    check_weights(checkpoint.folder)
    reader = reader_of(checkpoint.folder)
    model: _SentenceTransformer | _Retrieval | _OwnCode
    if reader == "own code":
        model = _OwnCode(checkpoint, device)
    elif reader == "transformers":
        model = _Retrieval(checkpoint, device)
    else:
        model = _SentenceTransformer(checkpoint, device)
    # on a CPU a batch of pictures is not faster than one at a time, and takes more memory
    images = IMAGES_PER_BATCH if model.device == "cuda" else 1
    return BatchEncoder(
        checkpoint.name,
        _named_errors(checkpoint.name)(model.pages),
        _named_errors(checkpoint.name)(model.queries),
        revision=checkpoint.revision,
        reads=model.reads,
        batch=images if model.reads == "image" else TEXTS_PER_BATCH,
        patches=getattr(model, "patches", None) if model.reads == "image" else None,
    )


class _SentenceTransformer:
    """A checkpoint that `sentence-transformers` reads."""

    def __init__(self, checkpoint: Checkpoint, device: str | None) -> None:
        try:
            from sentence_transformers import MultiVectorEncoder
        except ImportError:
            raise MissingExtraError("a multi-vector encoder", "multi-vector") from None
        folder = checkpoint.folder
        self.device = pick_device(device)
        with _named_errors(checkpoint.name), quietly(), without_videos():
            self._model = MultiVectorEncoder(
                str(folder),
                device=self.device,
                # an adapter's own model may lie elsewhere
                local_files_only=not (folder / ADAPTER).exists(),
                trust_remote_code=trusted(),
                model_kwargs={"use_safetensors": True},
                processor_kwargs=dict(PILLOW) if is_visual(folder) else None,
            )
        self.reads: Literal["text", "image"] = "image" if self._model.supports("image") else "text"
        self._room = self._tokens_a_page() if self.reads == "text" else None

    def pages(self, contents: list[Any]) -> list[Floats]:
        if self.reads == "image":
            return self._documents(contents)
        pieces = [self._pieces(text) for text in contents]
        made = iter(self._documents([piece for some in pieces for piece in some]))
        return [np.concatenate([next(made) for _ in some]) for some in pieces]

    def _documents(self, contents: list[Any]) -> list[Floats]:
        with quietly():
            made: list[Floats] = self._model.encode_document(
                contents,
                batch_size=len(contents) if self.reads == "image" else TEXTS_PER_BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return made

    def queries(self, texts: list[str]) -> list[Floats]:
        with quietly():
            made: list[Floats] = self._model.encode_query(
                texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
            )
        return made

    def _tokens_a_page(self) -> int | None:
        """How many tokens of a text the network accepts; None if it does not say."""
        tokenizer = self._model.tokenizer
        if tokenizer is None or not getattr(tokenizer, "is_fast", False):
            return None
        most = getattr(self._model[0], "document_length", None) or tokenizer.model_max_length
        prompt = self._model.prompts.get("document")
        framed = self._model.preprocess(["a"], prompt=prompt, task="document")["input_ids"]
        alone = tokenizer("a", add_special_tokens=False)["input_ids"]
        return max(1, int(most) - int(framed.shape[-1]) + len(alone))

    def _pieces(self, text: str) -> list[str]:
        """Cut a text at white space into pieces that fit the network, which would truncate it."""
        if self._room is None:
            return [text]
        tokens = self._model.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )["offset_mapping"]
        pieces, first = [], 0
        while len(tokens) - first > self._room:
            last = first + self._room
            starts = [(i, tokens[i][0]) for i in range(first + 1, last + 1)]
            # a tokenizer counts the space before a word to that word, or not at all
            words = [i for i, at in starts if text[at - 1].isspace() or text[at].isspace()]
            last = words[-1] if words else last
            pieces.append(text[tokens[first][0] : tokens[last][0]])
            first = last
        return [*pieces, text[tokens[first][0] :]] if pieces else [text]

    def patches(self, image: Any) -> Grid | None:
        """The grid of a picture's patches, from the input of the network."""
        from sentence_transformers.multi_vector_encoder.interpretability import get_n_patches
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

        processor, model = self._model.processor, self._model
        try:
            columns, rows = get_n_patches(model, image.size)
            token = processor.tokenizer.convert_tokens_to_ids(processor.image_token)
        except (NotImplementedError, ValueError, AttributeError):
            return None  # the picture is cut into tiles, or the processor does not say
        prompt = model.prompts.get("document")
        features = model.preprocess([image], prompt=prompt, task="document")
        for module in model:
            if isinstance(module, MultiVectorMask):
                features = module(features, task="document")
        tokens = features["input_ids"][0][features["attention_mask"][0].bool()].cpu().numpy()
        return _grid(np.flatnonzero(tokens == token), rows, columns)


class _Retrieval:
    """`transformers`' own ColPali or ColQwen2."""

    reads: Literal["text", "image"] = "image"

    def __init__(self, checkpoint: Checkpoint, device: str | None) -> None:
        self._model = RetrievalModel(checkpoint.folder, device)
        self.device = self._model.device.type

    def pages(self, contents: list[Any]) -> Any:
        return _without_gradients(self._model.page_vectors, contents)

    def queries(self, texts: list[str]) -> Any:
        return _without_gradients(self._model.query_vectors, texts)


class _OwnCode:
    """A model whose code has `forward_images` and `forward_queries`, as Nemotron ColEmbed's has."""

    reads: Literal["text", "image"] = "image"

    def __init__(self, checkpoint: Checkpoint, device: str | None) -> None:
        try:
            import transformers
        except ImportError:
            raise MissingExtraError("looking at pages", "multi-vector") from None
        self.device = pick_device(device)
        with _named_errors(checkpoint.name), quietly():
            model = transformers.AutoModel.from_pretrained(
                checkpoint.folder,
                local_files_only=True,
                trust_remote_code=trusted(),
                use_safetensors=True,
                dtype="auto",
            )
        self._model = model.to(self.device).eval()

    def pages(self, contents: list[Any]) -> Any:
        return _without_gradients(self._model.forward_images, contents)

    def queries(self, texts: list[str]) -> Any:
        return _without_gradients(self._model.forward_queries, texts)


def _grid(places: Any, rows: int, columns: int) -> Grid | None:
    """The grid of the vectors at these positions, if every patch has one."""
    return Grid(places.reshape(rows, columns)) if len(places) == rows * columns else None


def _without_gradients(run: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    import torch

    with torch.inference_mode():
        return run(items)


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turn what a library raises over a checkpoint into one line that names it."""
    try:
        yield
    except GlieError:
        raise
    except Exception as error:
        reason = (
            str(error).strip().split("\n")[0] or "out of memory"
        )  # a MemoryError has no message
        if "trust_remote_code" in str(error):
            reason = f"it comes with code of its own; read it, and set {TRUST}=1 if it may run"
        raise EncoderError(f"{name}: cannot be used as an encoder: {reason}") from None
