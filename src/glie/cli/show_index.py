"""What the command line shows of an index: its contents, its size, its damage."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import rich.table
import rich.text

import glie
from glie.cli.terminal import output
from glie.codec.readout import shared
from glie.wording import count, listing, printable

if TYPE_CHECKING:
    from glie.index.health import Health
    from glie.index.repairing import Repair

NAMED = 5  # pages listed for each damaged file


def size(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def print_info(index: glie.Index, facts: glie.IndexInfo, documents: int) -> None:
    """What an index holds and how large it is."""
    rows = [
        ("pages", f"{facts.pages:,} in {count(documents, 'document')}"),
        ("deleted", f"{facts.deleted:,}" + (" (compact frees them)" if facts.deleted else "")),
        ("encoder", facts.encoder or "not recorded"),
        ("codec", codec_line(index, facts)),
        *([("codebook", codebook_line(index, facts))] if facts.codebook else []),
        ("on disk", size(facts.index_bytes) + f" in {count(facts.segments, 'segment')}"),
    ]
    if facts.pages:
        codec = f", codec {facts.codec_bytes / facts.pages:,.0f}" if facts.codec_bytes else ""
        each = f"{facts.bytes_per_page:,.0f} bytes, codes {facts.code_bytes_per_page:,}{codec}"
        rows.append(("a page", each))
        if facts.above_budget:
            rows.append(("", facts.above_budget))
        whole = f"{facts.vectors:,}, {size(facts.uncompressed_bytes)} at 2 bytes a number"
        rows.append(("vectors", whole))
        rows.append(("compression", f"{facts.compression:,.1f} times"))
    if facts.candidate_bytes:
        each = f"{facts.candidate_bytes / facts.pages if facts.pages else 0:,.0f}"
        rows.append(("candidates", f"{each} of these bytes a page, on top of any budget"))
    else:
        rows.append(("candidates", "no candidate index: every page is scanned"))
    rows.append(("words", words_line(facts)))
    if facts.column_bytes and facts.pages:
        each = f"{facts.column_bytes / facts.pages:,.0f} of these bytes a page"
        rows.append(("filters", f"{each}: metadata in columns"))
    if facts.image_bytes:
        rows.append(("pictures", f"{size(facts.image_bytes)}, not counted above"))
    if facts.document_bytes:
        rows.append(("uploads", f"{size(facts.document_bytes)}, not counted above"))
    table = rich.table.Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows:
        table.add_row(name, rich.text.Text(value))
    output.print(table)


def codec_line(index: glie.Index, facts: glie.IndexInfo) -> str:
    line = f"k = {facts.k}" + (f", D = {facts.dim}" if facts.dim else "") + f", {facts.dtype}"
    if facts.codewords:
        return f"{line}, and at most {count(facts.codewords, 'codeword')} a page"
    if index.codec.refiner is None:
        # a fitted codec is k-means at a k where fitting did not help
        label = "" if index.codec.scores else index.codec.readout.label
        return f"{line}, {label or 'normalised k-means'}"
    stages = "fitted, two stages" if index.codec.decoder else "fitted, one stage"
    return f"{line}, {stages} ({size(facts.codec_bytes)})"


def codebook_line(index: glie.Index, facts: glie.IndexInfo) -> str:
    """What the codebook is, where it is, and what it takes of the index."""
    book = index.codec.codebook
    made_for = f" for encoder {book.encoder.name!r}" if book and book.encoder else ""
    line = f"{facts.codebook}, {facts.codebook_size:,} codewords{made_for}"
    if facts.codebook_in == "glie":
        return f"{line}; comes with glie"
    if facts.codebook_in == "shared":
        return f"{line}; shared: {size(facts.codebook_bytes)} in {shared.folder()}, not counted"
    each = f", {facts.codebook_bytes / facts.pages:,.0f} of the bytes a page" if facts.pages else ""
    return f"{line}; inside: {size(facts.codebook_bytes)}{each}"


def words_line(facts: glie.IndexInfo) -> str:
    """What the words of the pages take, and which pages have any."""
    if not facts.pages_with_text:
        return "no page has text: only meaning is searched"
    pages = f"{facts.pages_with_text:,} of {count(facts.pages, 'page')}"
    each = f"{facts.text_bytes / facts.pages:,.0f} of these bytes a page"
    language = f", in {facts.language.capitalize()}" if facts.language else ""
    return f"{each}; {pages} with text{language}"


def print_health(path: Path, health: Health, *, repairs: bool) -> None:
    """What is damaged, one line per file."""
    read = f"{count(health.files, 'file')}, {size(health.bytes)} read"
    if health.whole:
        print(f"{path}: no damage found: {count(health.pages, 'page')}, {read}")
        return
    print(f"{path}: {count(len(health.damage), 'fault')}; {read}")
    for damage in health.damage:
        concerned = [printable(page_id) for page_id in damage.pages[:NAMED]]
        others = len(damage.pages) - len(concerned)
        concerned += [f"{others:,} more (--json lists them)"] if others else []
        concerned += [f"{damage.unnamed:,} whose names cannot be read"] if damage.unnamed else []
        pages = f": {', '.join(concerned)}" if concerned else ""
        number = len(damage.pages) + damage.unnamed
        costs = {
            "pages": f"{count(number, 'page')} lost{pages}",
            "pictures": f"{count(number, 'picture')} lost{pages}",
            "words": f"the words of {count(number, 'page')} lost{pages}",
            "deletions": f"all {count(number, 'page')} of it are kept{pages}",
            "codec": "no page can be read; put the codec's own files back",
            "nothing": f"nothing is lost{pages}",
        }
        print(f"{damage}; {costs[damage.loss]}")
    if not repairs and not any(damage.loss == "codec" for damage in health.damage):
        print(f"undamaged: {count(health.pages, 'page')}, which `glie verify --repair` keeps")
        if health.pages_lost and health.folders:
            print(f"then {_again(path, health)} reads the lost pages from their documents again")
        if _lost_words(health):
            print(f"then {_words_again(path)} reads the lost words from their documents again")


def _lost_words(health: Health) -> bool:
    return any(damage.loss == "words" for damage in health.damage)


def _words_again(path: Path) -> str:
    return f"`glie compact {shlex.quote(str(path))} --text`"


def _again(path: Path, health: Health) -> str:
    """The command that indexes the documents of lost pages again."""
    folders = " ".join(shlex.quote(printable(folder)) for folder in health.folders)
    return f"`glie index {folders} --to {shlex.quote(str(path))}`"


def print_repair(path: Path, repair: Repair) -> None:
    state = "undamaged" if repair.after.whole else "still damaged"
    print(f"repaired: the index is {state} and holds {count(repair.after.pages, 'page')}")
    if repair.set_aside:
        print(f"set aside, to look at or delete: {listing(repair.set_aside)} in {path}")
    if repair.before.pages_lost and repair.before.folders:
        print(f"to restore what is lost, from the documents: {_again(path, repair.before)}")
    elif repair.before.pages_lost:
        print("to restore what is lost: index the documents again, or take it from a backup")
    if _lost_words(repair.before):
        print(f"to read the lost words again from the documents: {_words_again(path)}")
