"""Reads a PDF in a process of its own, which pdf.py starts: a page may be made to take any amount
of memory or time, and what is killed for that must not be us.

    python pdf_process.py PDF SECONDS BYTES

SECONDS of the processor's time may an answer take, BYTES of memory the process. It says how many
pages there are, {"pages": n}, and then answers a line of JSON on standard input with one on
standard output; pages are counted from 0:

    ["text", PAGE]             {"text": ...}
    ["words", PAGE]            {"words": [[word, left, top, right, bottom], ...]}
    ["picture", PAGE, SIZE]    {"size": [width, height]}, then so many pixels of three bytes

{"fault": ...} takes the place of what cannot be had. It imports nothing of glie, so that it starts
at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

MAX_CHARACTERS = 1_000_000  # of a page
FINE = 100_000  # the side of a device so large that whole pixels are exact enough


def allow(seconds: int) -> None:
    """The system kills this process when it takes more than so many seconds from now on."""
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
            if word and inside:  # what is cropped away is not on the page
                found.append((word, *box))
            run = []
    say(words=found)


def picture(page: Any, longest: int) -> None:
    """One page, its longer side `longest` pixels; it may claim any size, the picture's is ours."""
    image = page.render(scale=longest / max(*page.get_size(), 1)).to_pil().convert("RGB")
    pixels = image.tobytes()  # or it takes too much: before anything is said of them
    say(size=image.size)
    sys.stdout.buffer.write(pixels)
    sys.stdout.buffer.flush()


def _layer(page: Any) -> Any:
    """The text layer of a page, unless it is larger than any."""
    layer = page.get_textpage()
    if layer.count_chars() <= MAX_CHARACTERS:
        return layer
    say(fault=f"more than {MAX_CHARACTERS:,} characters")
    return None


def _plain(characters: str) -> str:
    """pdfium's text with its own marks taken out: U+FFFE stands for a hyphen at a line's end."""
    characters = characters.replace("\r\n", "\n").replace("\ufffe\n", "").replace("\ufffe", "")
    return characters.replace("\0", "")


def _on_page(page: Any, box: tuple[float, float, float, float]) -> tuple[float, ...]:
    """A box in the PDF's own coordinates as fractions of the page as it is shown: pdfium knows
    how it is rotated, cropped and shifted."""
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
