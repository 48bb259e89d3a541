"""The process that reads a PDF, started by pdf.py. A hostile page can take any amount of memory or
time; the limits then kill this process and not the caller.

    python pdf_process.py PDF SECONDS BYTES

An answer may take SECONDS of CPU time, the process BYTES of memory. It first prints the number of
pages, {"pages": n}. Then it answers each line of JSON on standard input with one on standard
output; pages are counted from 0:

    ["text", PAGE]             {"text": ...}
    ["words", PAGE]            {"words": [[word, left, top, right, bottom], ...]}
    ["picture", PAGE, SIZE]    {"size": [width, height]}, then width x height pixels of three bytes

Without a PDF ("-") it prints nothing first and counts the pages of any, and by a sample of them
those without text:

    ["count", PDF]             {"pages": n, "without_text": m}

{"fault": ...} is the answer when something fails. The process imports nothing of glie, so that it
starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

MAX_CHARACTERS = 1_000_000  # in a page
SAMPLE = 8  # pages of a PDF that are looked at to know how many have text
FEW = 3  # characters: fewer are no text
FINE = 100_000  # pixels a side: so many that rounding to whole pixels does not matter


def allow(seconds: int) -> None:
    """Have the system kill this process after another `seconds` of CPU time."""
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime) + 1
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = spent + seconds if hard == resource.RLIM_INFINITY else min(spent + seconds, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # or it is lower already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def say(**what: Any) -> None:
    sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(page: Any) -> None:
    layer = _layer(page)
    if layer is not None:
        say(text=_plain(layer.get_text_bounded()))


def words(page: Any) -> None:
    layer = _layer(page)
    if layer is None:
        return
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
    say(words=found)


def picture(page: Any, longest: int) -> None:
    """Draw one page, its longer side `longest` pixels, whatever size the page claims."""
    image = page.render(scale=longest / max(*page.get_size(), 1)).to_pil().convert("RGB")
    pixels = image.tobytes()  # before the answer starts: this may exceed the memory limit
    say(size=image.size)
    sys.stdout.buffer.write(pixels)
    sys.stdout.buffer.flush()


def count(path: str) -> None:
    import pypdfium2

    pdf = pypdfium2.PdfDocument(path)
    pages = len(pdf)
    looked_at = sorted({number * (pages - 1) // (SAMPLE - 1) for number in range(SAMPLE)})
    empty = sum(pdf[number].get_textpage().count_chars() < FEW for number in looked_at if pages)
    say(pages=pages, without_text=round(pages * empty / SAMPLE if pages >= SAMPLE else empty))
    pdf.close()


def _layer(page: Any) -> Any:
    """The text layer of a page; a fault if it has more than a million characters."""
    layer = page.get_textpage()
    if layer.count_chars() <= MAX_CHARACTERS:
        return layer
    say(fault=f"more than {MAX_CHARACTERS:,} characters")
    return None


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


ANSWERS: dict[str, Callable[..., None]] = {"text": text, "words": words, "picture": picture}


@contextlib.contextmanager
def faults_said() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        os.abort()  # like pdfium itself
    except Exception as error:
        say(fault=str(error) or type(error).__name__)


def main() -> None:
    path, seconds, memory = sys.argv[1:]
    if path == "-":
        limit_memory(int(memory))
        for line in sys.stdin:
            allow(int(seconds))
            with faults_said():
                count(json.loads(line)[1])
        return
    pdf = None
    with faults_said():
        import pypdfium2

        limit_memory(int(memory))
        allow(int(seconds))
        pdf = pypdfium2.PdfDocument(path)
        say(pages=len(pdf))
    if pdf is None:
        return
    for line in sys.stdin:
        what, number, *arguments = json.loads(line)
        allow(int(seconds))
        with faults_said():
            page = pdf[number]
            ANSWERS[what](page, *arguments)
            page.close()


if __name__ == "__main__":
    main()
