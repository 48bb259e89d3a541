"""Measure a corpus in the background: quality by budget, and geometry, on a sample of its pages.

A survey is made once for each state of the index.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
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
BUDGETS = (130, 260, 520, 1040, 2080, 4160)  # bytes a page

log = logging.getLogger("glie.serve")


@dataclasses.dataclass(frozen=True)
class Survey:
    """The progress of a survey, and its results."""

    state: Literal["idle", "running", "done", "failed"] = "idle"
    doing: str = ""
    share: float = 0.0  # of the work done
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
        self.survey = Survey()

    def start(self) -> Survey:
        """Start a survey, unless one is under way or up to date."""
        generation = self._library.index.generation
        with self._lock:
            made = self.survey.state == "done" and self.survey.generation == generation
            if not made and self.survey.state != "running":
                self.survey = Survey("running", "choosing pages", generation=generation)
                threading.Thread(target=self._run, name="survey", daemon=True).start()
        return self.survey

    def _run(self) -> None:
        try:
            self.survey = self._made(self._library.index)
        except GlieError as error:
            self._failed(str(error))
        except Exception:
            log.exception("the survey failed")
            self._failed("it failed; the server's log says why")

    def _failed(self, why: str) -> None:
        self.survey = dataclasses.replace(self.survey, state="failed", doing=why)

    def _say(self, doing: str, share: float) -> None:
        self.survey = dataclasses.replace(self.survey, doing=doing, share=share)

    def _made(self, index: Index) -> Survey:
        pages = sample(
            self._library,
            index,
            SAMPLE,
            lambda done, most: self._say(f"encoding page {done} of {most}", 0.7 * done / most),
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
            generation=self.survey.generation,
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
