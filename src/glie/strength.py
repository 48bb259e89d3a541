"""How well a page matches a question, beside what questions that have nothing to do with the index
reach there: a strength of 1 is that level, and below it nothing matches well.

The score of a search orders pages. It does not say whether the best of them is any good: some page
is always the best. So for each hit we add up two absolute shares:

- Words: BM25, as a share of what a page full of the question's words would score.
- Meaning: how far the page's MaxSim is above that of an average page of the index, as a share of
  the highest MaxSim there can be. It counts half if the index knows none of the question's words.

The level is the median of the same sum over the best page of each of UNRELATED. It is found once
for each state of an index. docs/results.md, When nothing matches: how often this is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from glie.index.folder import MANIFEST
from glie.index.index import Index
from glie.lexical.query import Query
from glie.search.options import HYBRID, LATE, LEXICAL
from glie.storage import replace_file

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]
Encode = Callable[[str], Any]  # a question to its vectors, (m, D)
Value = TypeVar("Value")

USUAL = 0.22  # the level of glie's encoders on five sets; a measured level is drawn half way to it
SAMPLE = 32  # pages whose average says what any page scores
MEDIAN = 0.5  # of what unrelated questions reach
QUARTILE = 0.25  # of what they reach by meaning alone, which tells less than both
LEAST = 0.001  # a level is not nothing
VERSION = 1  # of what is measured
KEPT = 64  # states of indexes that are remembered

UNRELATED = (
    "How long should bread dough rest before it is baked?",
    "Which knot holds a hammock between two trees?",
    "Why does my cat sleep on the keyboard?",
    "What is the best way to teach a child to ride a bicycle?",
    "Who wrote the lullaby that my grandmother sang?",
    "How often should a violin be tuned?",
    "When do swallows come back in spring?",
    "How do I remove candle wax from a wool carpet?",
    "Which chess opening gives up a pawn for a fast attack?",
    "How many players are on a field hockey team?",
    "What makes a soap bubble round?",
    "Can two goldfish live in one small bowl?",
    "How deep should tulip bulbs be planted?",
    "Which spices go into a mulled cider?",
    "What was the longest tennis match ever played?",
    "How do magicians saw a person in half?",
    "Why do onions make people cry?",
    "What should I wear to a wedding on the beach?",
    "How is a boomerang thrown so that it returns?",
    "Which key opens the old garden gate?",
    "How did sailors find north before the compass?",
    "Why is the left shoe tighter than the right one?",
    "What do hedgehogs eat in winter?",
    "How do I fold a paper crane?",
)


class Question(NamedTuple):
    """A question, as far as it was searched."""

    query: Query | None  # None: its words count for nothing
    vectors: Any  # None: its meaning counts for nothing


class UnmeasuredError(Exception):
    """The encoder makes no vectors of other questions."""


def strengths(index: Index, asked: Question, ids: list[str], encode: Encode) -> list[float] | None:
    """The strength of some pages for a question. `encode` makes the vectors of other questions; if
    it fails at these, strengths are not known: an encoder may know its own questions alone."""
    if not ids:
        return []
    try:
        level = _level(index, asked.query is not None, asked.vectors is not None, encode)
    except UnmeasuredError as error:
        log.info("%s: no strengths: other questions cannot be encoded: %s", index.path, error)
        return None
    return [float(share / level) for share in _shares(index, asked, ids)]


def _shares(index: Index, asked: Question, ids: list[str]) -> Floats:
    """What words and meaning add up to, of each page."""
    total = np.zeros(len(ids))
    known = 1.0
    if asked.query is not None:
        hits = index.search(None, len(ids), text=[asked.query], mode=LEXICAL, ids=ids)[0]
        share = dict(zip(hits.ids, hits.scores, strict=True))
        total += [share.get(page_id, 0.0) for page_id in ids]
        known = _known(index, asked.query)
    if asked.vectors is not None:
        total += _above_average(index, asked.vectors, ids) * (1 + known) / 2
    return total


def _known(index: Index, query: Query) -> float:
    """The share of a question's terms that any page has."""
    having = index.pages_having(query.terms)
    return sum(1 for term in query.terms if having[term]) / max(len(query.terms), 1)


def _above_average(index: Index, vectors: Any, ids: list[str]) -> Floats:
    """How far the MaxSim of some pages is above that of an average page, as a share of the most."""
    rows = np.asarray(vectors)
    sample = _sample(index)
    both = list(dict.fromkeys([*ids, *sample]))
    hits = index.search([rows], len(both), mode=LATE, ids=both, shortlist=len(both))[0]
    late = dict(zip(hits.ids, hits.scores, strict=True))
    usual = np.mean([late[page_id] for page_id in sample])
    most = float(np.linalg.norm(rows, axis=1).sum())
    above = np.array([late[page_id] for page_id in ids]) - usual
    return np.asarray(above / max(most, 1e-9))


def _sample(index: Index) -> list[str]:
    """Pages at equal distances."""

    def chosen() -> list[str]:
        ids = index.ids
        places = np.linspace(0, len(ids) - 1, min(SAMPLE, len(ids))).astype(int)
        return [ids[place] for place in places.tolist()]

    return _samples.get(_state(index), chosen)


def _level(index: Index, words: bool, meaning: bool, encode: Encode) -> float:
    """What the best page of an unrelated question usually reaches."""
    state = *_state(index), words, meaning

    def found() -> float:
        kept = _Kept(index.path)
        level = kept.read(state)
        if level is None:
            level = _measured(index, words, meaning, encode)
            kept.write(state, level)
        return level

    return _levels.get(state, found)


def _measured(index: Index, words: bool, meaning: bool, encode: Encode) -> float:
    reached = []
    for text in UNRELATED:
        query = index.parse(text) if words else None
        try:
            asked = Question(query, encode(text) if meaning else None)
        except Exception as error:  # each encoder raises its own errors
            raise UnmeasuredError(error) from error
        mode = (HYBRID if words else LATE) if meaning else LEXICAL
        vectors = [asked.vectors] if meaning else None
        best = index.search(vectors, 1, text=[query] if query else None, mode=mode)[0].ids
        reached.append(float(_shares(index, asked, best)[0]) if best else 0.0)
    if not words:
        return max(_quantile(reached, QUARTILE), LEAST)
    return (_quantile(reached, MEDIAN) + USUAL) / 2


def _quantile(values: Sequence[float], share: float) -> float:
    """As numpy's, which would load its masked arrays first: a search starts without them."""
    return float(np.interp(share, np.linspace(0, 1, len(values)), np.sort(values)))


def _state(index: Index) -> tuple[Hashable, ...]:
    """What a state of an index is known by."""
    encoder = None if index.encoder is None else index.encoder.revision
    try:
        written = (index.path / MANIFEST).stat().st_mtime_ns  # the folder may be another one by now
    except OSError:
        written = 0
    return str(index.path.resolve()), index.generation, len(index), encoder, written


class _Kept:
    """The levels of an index in the user's cache folder, for the next process. A cache that cannot
    be read or written is none."""

    def __init__(self, path: Path) -> None:
        name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
        self._file = cache_folder() / "levels" / f"{name}.json"

    def read(self, state: Sequence[Hashable]) -> float | None:
        found = self._levels().get(json.dumps([VERSION, *state]))
        return float(found) if isinstance(found, (int, float)) and found > 0 else None

    def write(self, state: Sequence[Hashable], level: float) -> None:
        levels = {**self._levels(), json.dumps([VERSION, *state]): level}
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, json.dumps(dict([*levels.items()][-3:])).encode())

    def _levels(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def cache_folder() -> Path:
    """Where this user's programs keep what they can make again."""
    home = Path("~").expanduser()
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "glie"


class Remembered(Generic[Value]):
    """The values of the states that came last, each made once; threads may share it."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Value] = {}
        self._lock = threading.Lock()

    def get(self, state: Hashable, make: Callable[[], Value]) -> Value:
        with self._lock:
            if state not in self._values:
                self._values[state] = make()
                if len(self._values) > KEPT:
                    del self._values[next(iter(self._values))]
            return self._values[state]


_samples, _levels = Remembered[list[str]](), Remembered[float]()
