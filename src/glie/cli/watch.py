"""`glie watch`: keep an index current while documents change."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glie.cli import fail
from glie.cli.index import (
    BytesPerPage,
    EncoderName,
    KeepImages,
    Language,
    Ocr,
    OcrLang,
    TextOf,
    language_hint,
    ocr_hint,
)
from glie.cli.terminal import errors, output, progress_bar, status_line
from glie.errors import GlieError, LockedError
from glie.wording import count, printable

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.index.index import Index
    from glie.indexing import CodecChoice
    from glie.ingest import Reading
    from glie.watching import Update

WAIT = 2.0  # seconds until a locked index is tried again

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="FOLDERS", help="Folders of documents, with all that is below them."),
]


def watch(
    folders: Folders,
    to: Annotated[Path, typer.Option("--to", metavar="INDEX", help="The index folder.")],
    bytes_per_page: BytesPerPage = None,
    encoder: EncoderName = None,
    keep_images: KeepImages = False,
    ocr: Ocr = True,
    ocr_lang: OcrLang = None,
    text: TextOf = "auto",
    language: Language = None,
) -> None:
    """Index folders, and again whatever changes in them, until Ctrl-C.

    First it does what `glie index` does, then it prints a line a change. A file is read when
    nothing has changed for a second. Files that cannot be read are named, and read again when they
    change. Files that are gone are named, and stay in the index until `glie delete`.

    glie watch reports/ --to reports.glie
    """
    from glie.indexing import CodecChoice
    from glie.ingest import Reading
    from glie.watching import changes, check_folders

    choice = CodecChoice(bytes_per_page)
    reading = Reading(keep_images, ocr, text, ocr_lang)  # refused before a folder is created
    check_folders(folders)
    follower = _Follower(folders, to, encoder, choice, language, reading)
    try:
        for only in changes(folders, to):
            follower.follow(only)
    except KeyboardInterrupt:
        if follower.working:
            fail("interrupted; the index keeps what was committed; run it again to go on", 130)
        output.print("stopped")


@dataclasses.dataclass
class _Follower:
    """Brings an index up to date, and says what it did."""

    folders: list[Path]
    to: Path
    encoder: str | None
    choice: CodecChoice
    language: str | None
    reading: Reading
    opened: tuple[Index, Encoder] | None = None  # none before there are documents
    gone: set[str] = dataclasses.field(default_factory=set)  # documents of which this was said
    language_said: bool = False
    working: bool = False

    def follow(self, only: Collection[Path]) -> None:
        """Index what changed. An error is said, and ends nothing."""
        self.working = True
        try:
            found = self._update(only)
            if found is not None:
                self._say(found)
        except (GlieError, OSError) as error:
            self._fault(str(error))
        self.working = False

    def _update(self, only: Collection[Path]) -> Update | None:
        from glie.documents import find_documents
        from glie.indexing import open_or_create
        from glie.watching import update

        begun = self.opened is not None
        if self.opened is None:
            if not find_documents(self.folders):
                self._line("waiting for the first document")
                return None
            with status_line("loading the encoder"):
                self.opened = open_or_create(
                    self.to, self.folders, self.encoder, self.choice, language=self.language
                )
            only = self.folders  # all that came while there was no index
        waiting = False
        while True:
            try:
                with progress_bar() as show:
                    found = update(*self.opened, self.folders, only, self.reading, show)
                break
            except LockedError as error:
                if not waiting:
                    self._line(f"waiting: {error}")
                waiting = True
                time.sleep(WAIT)
        if not begun:
            pages = count(len(self.opened[0]), "page")
            self._line(f"{self.to} holds {pages}; watching {', '.join(map(str, self.folders))}")
        return found

    def _say(self, found: Update) -> None:
        for what, documents in (("added", found.added), ("changed", found.changed)):
            for name, pages in documents.items():
                self._line(f"{what} {name}: {count(pages, 'page')}")
        gone = set(found.report.documents_gone)
        for name in sorted(gone - self.gone):
            self._line(f"gone {name}: it stays in the index until `glie delete`")
        self.gone = gone
        language = None if self.language_said else language_hint(found.report)
        self.language_said |= language is not None
        for problem in filter(None, [*found.report.problems, ocr_hint(found.report), language]):
            self._fault(problem)

    def _line(self, text: str) -> None:
        output.print(f"{time.strftime('%H:%M:%S')} {printable(text)}", soft_wrap=True)

    def _fault(self, text: str) -> None:
        said = f"{time.strftime('%H:%M:%S')} {printable(' '.join(text.split()))}"
        errors.print(said, style="red", soft_wrap=True)
