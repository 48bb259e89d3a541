"""PDF files, read by pdfium."""

from __future__ import annotations

import ctypes
from typing import Any

from glie.documents.readers.blocks import RefusedError

MAX_CHARACTERS = 1_000_000  # in a page
SAMPLE = 8  # pages of a PDF that are looked at to know how many have text
FEW = 3  # characters: fewer are no text
FINE = 100_000  # pixels a side: so many that rounding to whole pixels does not matter


class Pdf:
    """An open PDF; pages are counted from 0."""

    def __init__(self, path: str) -> None:
        import pypdfium2

        self._pdf = pypdfium2.PdfDocument(path)
        self.pages: int = len(self._pdf)

    def text(self, number: int) -> str:
        return _plain(_layer(self._pdf[number]).get_text_bounded())

    def words(self, number: int) -> list[tuple[Any, ...]]:
        page = self._pdf[number]
        layer = _layer(page)
        characters = layer.get_text_range()
        found: list[tuple[Any, ...]] = []
        run: list[int] = []
        count = min(len(characters), layer.count_chars())
        for i, character in enumerate([*characters[:count], " "]):
            if not character.isspace():
                run.append(i)
            elif run:
                word = _plain("".join(characters[j] for j in run))
                corners = [_on_page(page, layer.get_charbox(j)) for j in run]
                left, top, right, bottom = zip(*corners, strict=True)
                box = (min(left), min(top), max(right), max(bottom))
                inside = 0 <= box[0] <= box[2] <= 1 and 0 <= box[1] <= box[3] <= 1
                if word and inside:  # cropped words are not on the page
                    found.append((word, *box))
                run = []
        return found

    def picture(self, number: int, longest: int) -> tuple[tuple[int, int], bytes]:
        """Draw one page, its longer side `longest` pixels, whatever size the page claims."""
        page = self._pdf[number]
        image = page.render(scale=longest / max(*page.get_size(), 1)).to_pil().convert("RGB")
        return image.size, image.tobytes()

    def without_text(self) -> int:
        """About how many pages have no text, by a sample of them."""
        last = self.pages - 1
        looked_at = sorted({number * last // (SAMPLE - 1) for number in range(SAMPLE)})
        pages = [self._pdf[number] for number in looked_at if self.pages]
        empty = sum(int(page.get_textpage().count_chars() < FEW) for page in pages)
        return round(self.pages * empty / SAMPLE if self.pages >= SAMPLE else empty)

    def close(self) -> None:
        self._pdf.close()


def _layer(page: Any) -> Any:
    """The text layer of a page; refused if it has more than a million characters."""
    layer = page.get_textpage()
    if layer.count_chars() > MAX_CHARACTERS:
        raise RefusedError(f"more than {MAX_CHARACTERS:,} characters")
    return layer


def _plain(characters: str) -> str:
    """pdfium's text without its own marks: U+FFFE stands for a hyphen at the end of a line."""
    characters = characters.replace("\r\n", "\n").replace("\ufffe\n", "").replace("\ufffe", "")
    return characters.replace("\0", "")


def _on_page(page: Any, box: tuple[float, float, float, float]) -> tuple[float, ...]:
    """Turn a box in PDF coordinates into fractions of the page as shown. pdfium applies the
    page's rotation, crop and shift."""
    from pypdfium2 import raw

    corners = []
    for x, y in ((box[0], box[1]), (box[2], box[3])):
        across, down = ctypes.c_int(), ctypes.c_int()
        raw.FPDF_PageToDevice(page, 0, 0, FINE, FINE, 0, x, y, across, down)
        corners.append((across.value / FINE, down.value / FINE))
    (x0, y0), (x1, y1) = corners
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
