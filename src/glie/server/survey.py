"""Measure a corpus in the background: quality by budget, and geometry, on a sample of its pages.

A survey is made once for each state of the index.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from glie.errors import GlieError, InputError
from glie.geometry import CorpusGeometry, measure
from glie.index.index import Index
from glie.pages import Floats, Pages
from glie.planning import Planned, plan
from glie.server.library import Library

SAMPLE = 120  # pages to encode again
ENCODING = 0.7  # of the time that a survey takes
BUDGETS = (130, 260, 520, 1040, 2080, 4160)  # bytes a page

log = logging.getLogger("glie.serve")


@dataclasses.dataclass(frozen=True)
class Survey:
    """The progress of a survey, and its results."""

    state: Literal["idle", "running", "done", "failed"] = "idle"
    doing: str = ""
    share: float = 0.0  # of the work done
    seconds: float | None = None  # that it takes, or still takes
    generation: int = -1  # of the index that was measured
    sampled: int = 0
    budgets: tuple[Planned, ...] = ()  # the last row is uncompressed
    current: Planned | None = None  # with the index's own codec
    geometry: CorpusGeometry | None = None


class Surveyor:
    """Makes surveys, one at a time."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._began = 0.0
        self._survey = Survey()

    @property
    def survey(self) -> Survey:
        """How far the survey is, and how long it takes."""
        found = self._survey
        if found.state == "running" and found.share > 0:
            gone = time.monotonic() - self._began
            return dataclasses.replace(found, seconds=gone / found.share - gone)
        if found.state == "idle" and found.seconds is None:
            self._survey = found = dataclasses.replace(found, seconds=self._expected())
        return found

    def _expected(self) -> float | None:
        """The seconds that a survey should take: a page is encoded to know."""
        library, index = self._library, self._library.index
        with contextlib.suppress(GlieError, OSError, IndexError):
            _ = library.encoder  # loaded before the clock starts
            for page_id in index.ids[:1]:
                began = time.monotonic()
                library.locate(index, page_id)
                each = time.monotonic() - began
                return each * min(SAMPLE, len(index)) / ENCODING
        return None

    def start(self) -> Survey:
        """Start a survey, unless one is under way or up to date."""
        generation = self._library.index.generation
        with self._lock:
            now = self._survey
            made = now.state == "done" and now.generation == generation
            if not made and now.state != "running":
                self._began = time.monotonic()
                self._survey = Survey("running", "choosing pages", generation=generation)
                threading.Thread(target=self._run, name="survey", daemon=True).start()
        return self.survey

    def _run(self) -> None:
        try:
            made = self._made(self._library.index)
            self._survey = dataclasses.replace(made, seconds=time.monotonic() - self._began)
        except GlieError as error:
            self._failed(str(error))
        except Exception:
            log.exception("the survey failed")
            self._failed("it failed; the server's log says why")

    def _failed(self, why: str) -> None:
        self._survey = dataclasses.replace(self._survey, state="failed", doing=why)

    def _say(self, doing: str, share: float) -> None:
        self._survey = dataclasses.replace(self._survey, doing=doing, share=share)

    def _made(self, index: Index) -> Survey:
        pages = sample(
            self._library,
            index,
            SAMPLE,
            lambda done, most: self._say(f"encoding page {done} of {most}", ENCODING * done / most),
        )
        rows = plan(
            pages,
            budgets_for(pages.dim),
            encoder=index.encoder,
            codec=index.codec,
            progress=lambda progress: self._say(str(progress), 0.75),
        )
        self._say("the shape of pages", 0.9)
        shape = measure({index.path.name: zip(pages.ids, pages, strict=True)})[0]
        return Survey(
            "done",
            share=1.0,
            generation=self._survey.generation,
            sampled=len(pages),
            budgets=tuple(row for row in rows if row is not rows[-2]),
            current=rows[-2],
            geometry=shape,
        )


def sample(
    library: Library, index: Index, most: int, progress: Callable[[int, int], None]
) -> Pages:
    """All vectors of at most `most` pages, drawn at random; pages without a file are skipped."""
    ids = index.ids
    kept: dict[str, Floats] = {}
    why = "the index is empty"
    for place in np.random.default_rng(0).permutation(len(ids)).tolist():
        try:
            kept[ids[place]] = library.encoded(index, ids[place]).vectors
        except (GlieError, OSError, IndexError) as error:
            why = str(error)
            continue
        progress(len(kept), min(most, len(ids)))
        if len(kept) == most:
            break
    if not kept:
        raise InputError(f"no page can be encoded again: {why}")
    return Pages(list(kept.values()), list(kept))


def budgets_for(dim: int) -> list[int]:
    """The budgets to measure, in bytes a page, scaled with the dimension of the vectors."""
    return [budget * max(1, round(dim / 128)) for budget in BUDGETS]
