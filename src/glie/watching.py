"""Keep an index current: notice which files of folders change, and index them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from glie.documents import SUFFIXES
from glie.documents.known import known_documents
from glie.encoders.base import Encoder
from glie.errors import DocumentError, MissingExtraError
from glie.index.index import Index
from glie.ingest import Reading, Report, ingest
from glie.progress import ignore
from glie.workload import OnIngestProgress

QUIET = 1.0  # seconds without a change after which files count as written
LONGEST = 30.0  # seconds after which they are read even if something goes on changing


class Update(NamedTuple):
    """What an update did: the pages of the documents that were added and that were changed."""

    added: dict[str, int]
    changed: dict[str, int]
    report: Report


def check_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        if not folder.is_dir():
            found = "a file" if folder.exists() else "nothing there"
            raise DocumentError(f"{folder}: expected a folder to watch, found {found}")


def changes(
    folders: Sequence[Path],
    index: Path,
    *,
    quiet: float = QUIET,
    stop: threading.Event | None = None,
) -> Iterator[set[Path]]:
    """The paths below the folders that changed, each time that nothing changed for `quiet` seconds.
    First the folders themselves: all that is in them. Likewise when a folder comes back that was
    gone. Changes are noticed from the first on, also while the caller works. What happens to the
    index itself is left out."""
    try:
        import watchfiles
    except ImportError:
        raise MissingExtraError("watching folders", "watch") from None
    check_folders(folders)
    folders = [folder.resolve() for folder in folders]
    own = str(index.resolve()) + os.sep

    def counts(change: watchfiles.Change, path: str) -> bool:
        if path.startswith(own):
            return False
        document = Path(path).suffix.lower() in SUFFIXES
        return document or change is watchfiles.Change.deleted or Path(path).is_dir()

    while stop is None or not stop.is_set():
        pending, since = set(folders), 0.0
        for seen in watchfiles.watch(
            *folders,
            watch_filter=counts,
            debounce=int(1000 * quiet),
            rust_timeout=int(1000 * quiet),
            yield_on_timeout=True,
            stop_event=stop,
        ):
            if not pending:
                since = time.monotonic()
            pending |= {Path(path) for _, path in seen}
            if not all(folder.is_dir() for folder in folders):
                break
            if pending and (not seen or time.monotonic() - since > LONGEST):
                yield pending
                pending = set()
        while not all(folder.is_dir() for folder in folders) and not (stop and stop.is_set()):
            time.sleep(quiet)


def update(
    index: Index,
    encoder: Encoder,
    folders: Sequence[Path],
    only: Collection[Path],
    reading: Reading,
    progress: OnIngestProgress = ignore,
) -> Update:
    """Index the documents at or below the paths in `only` that are new or have changed. Those that
    are gone are named in the report, and stay in the index."""
    with index.writing():
        index.refresh()
        before = known_documents(index)
        report = ingest(
            index,
            encoder,
            folders,
            keep_images=reading.keep_images,
            ocr=reading.ocr,
            text=reading.text,
            ocr_lang=reading.ocr_lang,
            only=only,
            progress=progress,
        )
        added, changed = dict[str, int](), dict[str, int]()
        for name, document in known_documents(index).items():
            if name not in before:
                added[name] = len(document.ids)
            elif document != before[name]:
                changed[name] = len(document.ids)
    return Update(added, changed, report)
