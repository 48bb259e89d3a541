"""Read documents ahead of what is done with them: in a few threads, a bounded number of pages.

The documents come in their order, and what a thread raises is raised where its document comes.
Threads are enough: tesseract and the processes that read documents run beside Python.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

from glie.documents.find import FoundDocument
from glie.documents.opened import one_more_each
from glie.documents.process import end_answers
from glie.documents.read import OcrThreads
from glie.kernels.parallel import cores

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_READERS = 8  # threads; a hostile document may take 2 GB of memory in the process of each
PAGES_AHEAD = 128  # no other document is begun while so many pages wait
PICTURES = 2  # drawn for each thread of OCR
LISTEN = 1.0  # seconds; on Windows, an interrupt is noticed between two waits

T = TypeVar("T")
U = TypeVar("U")
EachPage = Callable[[bool, float], None]  # whether OCR looked at it, and the seconds it took
Read = Callable[[FoundDocument, Callable[[bool], None], OcrThreads | None], T]


class Arriving(Generic[T]):
    """A document that is being read."""

    def __init__(self, document: FoundDocument) -> None:
        self.document = document
        self.pages = 0  # read so far
        self.said: queue.SimpleQueue[tuple[bool, float] | None] = queue.SimpleQueue()
        self._outcome: Future[T] = Future()

    def read(self, call: Callable[[], T]) -> None:
        try:
            self._outcome.set_result(call())
        except BaseException as error:
            self._outcome.set_exception(error)
        self.said.put(None)

    def result(self, each: EachPage) -> T:
        """What was read, or the error. `each` is called for every page, as soon as it is read."""
        while True:
            with contextlib.suppress(queue.Empty):
                page = self.said.get(timeout=LISTEN)
                if page is None:
                    return self._outcome.result()
                each(*page)


class Now(Generic[T]):
    """A document that is read when it is wanted."""

    def __init__(self, document: FoundDocument, read: Read[T]) -> None:
        self.document = document
        self._read = read

    def result(self, each: EachPage) -> T:
        begun = time.perf_counter()

        def timed(by_ocr: bool) -> None:
            nonlocal begun
            now = time.perf_counter()
            each(by_ocr, now - begun)
            begun = now

        return self._read(self.document, timed, None)


class _Unwanted(Exception):  # noqa: N818
    """Nobody waits for a document any more."""


class Readers:
    """Threads that read documents, and others for OCR and for drawing pages: as many as there are
    cores. With 0 threads, everything is done when it is wanted, by the thread that wants it."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = min(cores(), MOST_READERS) if threads is None else threads
        self._stack = contextlib.ExitStack()
        self._room = threading.BoundedSemaphore(PICTURES * max(1, self.threads))
        self._working = set[int]()  # threads
        self._beside: ThreadPoolExecutor
        self._readers: ThreadPoolExecutor
        self._changed = threading.Condition()
        self._stopped = False

    def __enter__(self) -> Readers:
        if self.threads:
            self._stack.enter_context(one_more_each(self.threads))
            for name in ("_beside", "_readers"):
                pool = ThreadPoolExecutor(self.threads, initializer=self._begin)
                setattr(self, name, self._stack.enter_context(pool))
        return self

    def _begin(self) -> None:
        self._working.add(threading.get_ident())

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self.threads:
            self._beside.shutdown(wait=False, cancel_futures=True)
            if kind is not None:
                end_answers(self._working)
        self._stack.close()

    def documents(
        self, found: Sequence[FoundDocument], read: Read[T]
    ) -> Iterator[Arriving[T] | Now[T]]:
        """The documents in their order, each being read."""
        if not self.threads:
            yield from (Now(document, read) for document in found)
            return
        left, begun = iter(found), deque[Arriving[T]]()  # those begun that are not taken

        def work() -> None:
            while True:
                with self._changed:
                    while not self._stopped and sum(max(1, a.pages) for a in begun) >= PAGES_AHEAD:
                        self._changed.wait()
                    document = None if self._stopped else next(left, None)
                    if document is None:
                        return
                    one = Arriving[T](document)
                    begun.append(one)
                    self._changed.notify_all()
                one.read(functools.partial(read, document, self._each(one), self))

        for _ in range(min(self.threads, len(found))):
            self._readers.submit(work)
        for _ in found:
            with self._changed:
                while not begun:
                    self._changed.wait(LISTEN)
            yield begun[0]
            with self._changed:
                begun.popleft()
                self._changed.notify_all()

    def _each(self, one: Arriving[T]) -> Callable[[bool], None]:
        begun = time.perf_counter()

        def each(by_ocr: bool) -> None:
            nonlocal begun
            if self._stopped:
                raise _Unwanted
            now = time.perf_counter()
            one.pages += 1
            one.said.put((by_ocr, (now - begun) / self.threads))
            begun = now

        return each

    def text(self, draw: Callable[[], Image], read: Callable[[Image], str]) -> Future[str]:
        """Draw a page now, and read its text beside."""
        self._room.acquire()
        try:
            text = self._beside.submit(read, draw())
        except BaseException:
            self._room.release()
            raise
        text.add_done_callback(lambda _: self._room.release())
        return text

    def parts(self, items: Sequence[T], size: int, work: Callable[[T], U]) -> Iterator[list[U]]:
        """What `work` makes of items, in lists of `size`; the next list is made beside."""
        lists = [items[at : at + size] for at in range(0, len(items), size)]
        if not self.threads:
            for some in lists:
                yield [work(item) for item in some]
            return
        started = ([self._beside.submit(work, item) for item in some] for some in lists)
        for now, _ in itertools.pairwise(itertools.chain(started, [[]])):
            yield [future.result() for future in now]
