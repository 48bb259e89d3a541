"""How far an ingestion is, and how long the rest of it takes.

Pages are counted before the first is read. A page that OCR reads takes many times as long as one
with text, so what is left is estimated for each kind of work by what that kind took so far.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from glie.documents.counting import PageCount
from glie.progress import Progress, ignore
from glie.renamed import renamed

# Seconds that a page takes on two cores of a laptop, with the embedded encoder. Until a kind is
# measured, they say how it compares with what is measured.
SECONDS = {"read": 0.01, "ocr": 0.5, "encode": 0.08}
TRUST = 6  # measured pages that count as much as these figures: pictures differ much

COUNTING, READING, SCANNING = "counting pages", "reading", "reading by OCR"
ENCODING, STORING = "encoding", "storing"
COMPILING = "compiling, once on this machine,"  # before the name of a document


@dataclasses.dataclass(frozen=True)
class IngestProgress(Progress):
    """Pages encoded. Their total is an estimate if they were not counted first."""

    _: dataclasses.KW_ONLY
    document: str  # the last one read
    documents_read: int
    documents: int
    counted: bool = dataclasses.field(default=False, compare=False)
    stage: str = dataclasses.field(default=READING, compare=False)
    seconds_left: float | None = dataclasses.field(default=None, compare=False)

    pages_done = renamed("pages_done", "done")
    pages = renamed("pages", "total")

    @classmethod
    def of(
        cls, document: str, documents_read: int, documents: int, pages_done: int, pages_read: int
    ) -> IngestProgress:
        """Estimate the total from the pages of the documents read so far."""
        total = round(pages_read * documents / max(documents_read, 1))
        return cls(
            "pages",
            pages_done,
            total,
            document=document,
            documents_read=documents_read,
            documents=documents,
        )

    @property
    def estimated(self) -> bool:
        return self.documents_read < self.documents and not self.counted

    def __str__(self) -> str:
        if self.stage == COUNTING:
            return f"{self.documents_read:,} of {self.documents:,} documents"
        return f"{self.done:,} of {'about ' if self.estimated else ''}{self.total:,} pages"


OnIngestProgress = Callable[[IngestProgress], None]


class Workload:
    """The work of an ingestion: what is left of it, and how long what is done has taken."""

    def __init__(self, documents: int, progress: OnIngestProgress = ignore) -> None:
        self._progress = progress
        self._documents = documents
        self._counts: list[PageCount] = []
        self._document, self._read = "", 0
        self._encoded = self._waiting = 0
        self._current: PageCount | None = None  # what is left of the document being read
        self._held = 0  # pages of it that are read
        self._done = dict.fromkeys(SECONDS, 0)
        self._spent = dict.fromkeys(SECONDS, 0.0)
        self._passed = 0.0  # seconds; less than what was spent, where kinds overlap
        self._unstored, self._storing = 0, 0.0  # pages; seconds that storing one takes
        self._compiling = 0.0  # seconds that compiling loops adds to the first time
        self._at = time.perf_counter()

    @property
    def wanted(self) -> bool:
        """Whether anyone looks."""
        return self._progress is not ignore

    def count(self, document: str, count: PageCount) -> None:
        """The pages of the next document; (0, 0) for one that is skipped."""
        self._counts.append(count)
        self._show(COUNTING, document, len(self._counts))

    def expect_compiling(self, seconds: float) -> None:
        """Storing the first pages takes so many seconds longer."""
        self._compiling = seconds

    def begin(self, document: str) -> None:
        """A document is going to be read."""
        self._document = document
        self._current = self._counts[self._read] if self._counts else PageCount(0, 0)
        self._held = 0
        self._at = time.perf_counter()
        self._show(SCANNING if self._current.scans else READING, document, self._read)

    def read_page(self, by_ocr: bool, seconds: float | None = None) -> None:
        """A page of it is read, or has been looked at by OCR. `seconds`: what that took of a
        thread beside."""
        self._note("ocr" if by_ocr else "read", 1, seconds)
        pages, scans = self._current or PageCount(0, 0)
        self._current = PageCount(max(pages - 1, 0), max(scans - by_ocr, 0))
        self._held += 1
        self._show(SCANNING if by_ocr else READING, self._document, self._read)

    def finish(self, pages: int) -> None:
        """It is read: so many pages of it wait to be encoded."""
        self._read += 1
        self._waiting += pages
        self._current, self._held = None, 0
        self._show(READING, self._document, self._read)

    def begin_encoding(self) -> None:
        """What waits is going to be encoded."""
        self._at = time.perf_counter()
        self._show(ENCODING, self._document, self._read)

    def encode(self, pages: int) -> None:
        """So many pages are encoded."""
        self._note("encode", pages)
        self._unstored += pages
        self._encoded, self._waiting = self._encoded + pages, self._waiting - pages
        storing = COMPILING if self._compiling else STORING
        self._show(ENCODING if self._waiting else storing, self._document, self._read)

    def store(self) -> None:
        """What was encoded is stored. The fastest time counts, and none that compiled."""
        now = time.perf_counter()
        each, self._at = (now - self._at) / max(self._unstored, 1), now
        if not self._compiling:
            self._storing = min(self._storing or each, each)
        self._unstored, self._compiling = 0, 0.0

    def _note(self, kind: str, pages: int, seconds: float | None = None) -> None:
        now = time.perf_counter()
        self._passed += now - self._at
        self._done[kind] += pages
        self._spent[kind] += now - self._at if seconds is None else seconds
        self._at = now

    def _show(self, stage: str, document: str, read: int) -> None:
        counted = len(self._counts) == self._documents
        coming, total = self._coming(), self.pages
        step = IngestProgress.of(document, read, self._documents, self._encoded, total)
        if counted:
            left = self._seconds_left(coming, total - self._encoded)
            step = dataclasses.replace(
                step, total=total, counted=True, stage=stage, seconds_left=left
            )
        self._progress(dataclasses.replace(step, stage=stage))

    @property
    def pages(self) -> int:
        """Pages that are encoded, or are known to come."""
        coming = sum(count.pages for count in self._coming())
        return self._encoded + coming + self._held + self._waiting

    def _coming(self) -> list[PageCount]:
        """What is left to read of the current document, and of those behind it."""
        coming = list(self._counts[self._read :])
        return coming if self._current is None else [self._current, *coming[1:]]

    def _seconds_left(self, coming: Sequence[PageCount], pages: int) -> float:
        scans = sum(min(count) for count in coming)
        left = {"ocr": scans, "read": sum(c.pages for c in coming) - scans, "encode": pages}
        expected = sum(self._done[kind] * SECONDS[kind] for kind in SECONDS)
        slower = sum(self._spent.values()) / expected if expected else 1.0
        overlap = self._passed / spent if (spent := sum(self._spent.values())) else 1.0
        return (
            self._compiling
            + self._storing * pages
            + overlap
            * sum(
                number
                * (self._spent[kind] + TRUST * slower * SECONDS[kind])
                / (self._done[kind] + TRUST)
                for kind, number in left.items()
            )
        )
