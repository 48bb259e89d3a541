"""Excel files (.xlsx), by openpyxl: a table a sheet, with the values that Excel showed."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterator
from typing import Any

from glie.documents.readers.blocks import PAGE_BREAK, Block, in_a_line, paginate
from glie.documents.readers.packed import check_packed

FAR = re.compile(r"\t{30,}")  # blank columns before a cell far from the others


def pages(path: str) -> list[str]:
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]  # openpyxl can do without
    import openpyxl

    check_packed(path, "an Excel workbook", ".xlsx")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    return paginate(_blocks(book))


def _blocks(book: Any) -> Iterator[Block]:
    begun = False
    for sheet in book.worksheets:  # not the sheets that are only a chart
        if sheet.sheet_state != "visible":
            continue
        sheet.reset_dimensions()  # what the file claims may be vast
        named = False
        for row in sheet.iter_rows():
            cells = [_shown(cell) for cell in row]
            if not any(cells):
                continue
            if not named:
                if begun:
                    yield PAGE_BREAK
                yield Block("heading", sheet.title)
                named = begun = True
            yield Block("row", FAR.sub("\t", "\t".join(cells).rstrip()))


def _shown(cell: Any) -> str:
    """A value about as Excel shows it: dates in ISO form, per cent where the format says so."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        if "%" in (cell.number_format or ""):
            return f"{100 * value:.10g}%"
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        whole_day = value.time() == datetime.time()
        return value.date().isoformat() if whole_day else value.isoformat(" ", "minutes")
    return in_a_line(str(value))
