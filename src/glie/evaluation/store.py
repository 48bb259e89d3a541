"""The store of finished results and fitted codecs, one small file each.

A result is written as soon as it is measured, with a digest of its inputs. An interrupted run
continues where it stopped; a result whose vectors or codec have changed is measured again.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.evaluation.encoded import Encoded
from glie.geometry import CorpusGeometry
from glie.search.results import Ranking
from glie.storage import digest_of, replace_file

FORMAT = 1  # of stored results; a new number invalidates all of them


class Setting(NamedTuple):
    """What is measured: a method on a set, at a budget."""

    dataset: str
    method: str
    k: int | None = None  # None: all vectors, or as many as fit the bytes
    seed: int = 0
    shortlist: int | None = None  # None: one stage
    variant: str = ""  # of the codec or shortlist: "512x3", "25% of pages", "shortlist"
    bytes: int | None = None  # the budget, if it was given in bytes

    @property
    def budget(self) -> int | None:
        """The budget as given, in vectors or bytes; None for all vectors."""
        return self.k if self.bytes is None else self.bytes

    @property
    def label(self) -> str:
        budget = f"k{self.k}" if self.bytes is None else f"{self.bytes}bytes"
        parts = [self.method, budget if self.budget else "", self.variant]
        parts += [f"L{self.shortlist}" if self.shortlist else "", f"seed{self.seed}"]
        return "-".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class Result:
    """Quality and cost of a method on a set."""

    setting: Setting
    bytes_per_page: float
    ms_per_query: float  # in a batch of all questions
    measures: dict[str, float]  # means over the questions
    each: tuple[float, ...]  # nDCG@5 of every question
    codec: dict[str, Any] | None = None  # facts about a fitted codec or codebook

    @property
    def ndcg(self) -> float:
        return self.measures["ndcg_at_5"]

    def to_dict(self) -> dict[str, Any]:
        rest = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**self.setting._asdict(), **rest, "setting": None, "each": list(self.each)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Result:
        setting = Setting(**{name: values[name] for name in Setting._fields if name in values})
        rest = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        return cls(**{**rest, "setting": setting, "each": tuple(values["each"])})


class Keepable(Protocol):
    """A value that can be stored as JSON."""

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self: ...


Kept = TypeVar("Kept", bound=Keepable)


class Store:
    """Finished results and fits, in a folder or, without one, in memory."""

    def __init__(self, folder: Path | None, *, trec: bool = False) -> None:
        if folder is not None and folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: a file is in the way; name a folder for the results")
        self.folder, self.trec = folder, trec and folder is not None
        self.codecs: dict[str, Codec] = {}
        self.kept = self.made = 0  # results read, and results measured

    def result(self, setting: Setting, key: str, measure: Callable[[], Result]) -> Result:
        """Read a result, or measure and store it if there is none with the same key."""
        whole = self._has_run(setting)
        return self._finished(setting.dataset, setting.label, key, Result, measure, whole)

    def geometry(
        self, dataset: str, key: str, measure: Callable[[], CorpusGeometry]
    ) -> CorpusGeometry:
        """The same for the geometry of a set's pages."""
        return self._finished(dataset, "geometry", key, CorpusGeometry, measure)

    def _finished(
        self,
        dataset: str,
        label: str,
        key: str,
        kind: type[Kept],
        measure: Callable[[], Kept],
        whole: bool = True,
    ) -> Kept:
        file = None
        if self.folder is not None:
            file = self.folder / "runs" / filename(dataset) / f"{label}.json"
            found = _read(file, key, kind) if whole else None
            if found is not None:
                self.kept += 1
                return found
        made = measure()
        self.made += 1
        if file is not None:
            _write(file, json.dumps({"key": key, **made.to_dict()}))
        return made

    def codec(self, name: str, make: Callable[[], Codec]) -> Codec:
        """Read a fitted codec, or fit and store it. Its name identifies all its inputs."""
        if name not in self.codecs:
            folder = None if self.folder is None else self.folder / "codecs" / filename(name)
            if folder is not None and (folder / "config.json").exists():
                self.codecs[name] = Codec.load(folder)
                return self.codecs[name]
            codec = make()
            if codec.notes.get("interrupted"):
                raise KeyboardInterrupt  # do not store or measure an interrupted fit
            if folder is not None:
                folder.parent.mkdir(parents=True, exist_ok=True)
                codec.save(folder)
            self.codecs[name] = codec
        return self.codecs[name]

    def _run_file(self, setting: Setting) -> Path:
        assert self.folder is not None
        return self.folder / "trec" / filename(setting.dataset) / f"{setting.label}.run"

    def _has_run(self, setting: Setting) -> bool:
        return not self.trec or self._run_file(setting).exists()

    def run(self, setting: Setting, encoded: Encoded, found: Ranking) -> None:
        """Write the TREC run file of a ranking, if asked for."""
        if self.trec:
            text = trec_run(encoded.queries.ids, encoded.page_ids, found, setting.label)
            _write(self._run_file(setting), text)


def fingerprint(encoded: Encoded) -> str:
    """A digest of the vectors and judgements of a set, and of the version of glie: another version
    measures again."""
    known = _fingerprints.get(encoded)
    if known is None:
        known = _fingerprints[encoded] = digest_of(_parts(encoded))
    return known


def _parts(encoded: Encoded) -> Iterator[bytes]:
    """What is digested of a set, one block of pages at a time."""
    version = importlib.metadata.version("glie")
    judged = [encoded.page_ids, encoded.relevant, encoded.queries.ids]
    yield json.dumps([FORMAT, version, encoded.encoder.to_dict(), *judged]).encode()
    for array in (encoded.lengths, encoded.queries.offsets, encoded.queries.vectors):
        yield np.ascontiguousarray(array).tobytes()
    for block in encoded.blocks():
        yield block.vectors.tobytes()


_fingerprints: weakref.WeakKeyDictionary[Encoded, str] = weakref.WeakKeyDictionary()


def filename(name: str) -> str:
    """A name made safe for a file."""
    return "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in name)


def _read(file: Path, key: str, kind: type[Kept]) -> Kept | None:
    """Read a stored value; None if it is missing, damaged or has another key."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return kind.from_dict(found) if found["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, text: str) -> None:
    """Write a file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text.encode())


def trec_run(queries: Sequence[str], pages: Sequence[str], found: Ranking, name: str) -> str:
    """A ranking as a TREC run file: query, Q0, page, rank, score, name.

    Readers sort by score. Scores of the shortlist and of the rest are not on one scale, so the
    file has scores that fall with the rank. White space in an id becomes an underscore, because
    it would end the field.
    """
    lines = []
    for query, rows in zip(queries, found.positions, strict=True):
        for place, row in enumerate(rows, start=1):
            ids = ("_".join(text.split()) for text in (query, pages[row], name))
            asked, page, label = ids
            lines.append(f"{asked} Q0 {page} {place} {len(rows) - place + 1} {label}\n")
    return "".join(lines)
