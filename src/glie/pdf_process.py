"""Reads a PDF in a process of its own, which documents.py starts: a page may be made to take any
amount of memory or time, and what is killed for that must not be us.

    python pdf_process.py PDF SECONDS BYTES texts FIRST           {"pages": n}, {"text": ...} a page
    python pdf_process.py PDF SECONDS BYTES picture NUMBER SIZE   {"size": [w, h]}, then its pixels

SECONDS of the processor's time may a page take, BYTES of memory the process. Each answer is a line
of JSON on standard output; {"fault": ...} takes the place of what cannot be had. It imports nothing
of glie, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

MAX_CHARACTERS = 1_000_000  # of a page


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


def texts(pdf: Any, first: int, seconds: int, fault: type[Exception]) -> None:
    """The text of every page from `first` on, counted from 0."""
    say(pages=len(pdf))
    for number in range(first, len(pdf)):
        allow(seconds)
        try:
            page = pdf[number]
            layer = page.get_textpage()
            if layer.count_chars() > MAX_CHARACTERS:
                say(fault=f"more than {MAX_CHARACTERS:,} characters")
            else:
                say(text=layer.get_text_bounded())
            page.close()
        except fault as error:
            say(fault=str(error))


def picture(pdf: Any, number: int, longest: int, fault: type[Exception]) -> None:
    """One page, its longer side `longest` pixels; it may claim any size, the picture's is ours."""
    try:
        page = pdf[number]
        image = page.render(scale=longest / max(*page.get_size(), 1)).to_pil().convert("RGB")
    except fault as error:
        say(fault=str(error))
        return
    say(size=image.size)
    sys.stdout.buffer.write(image.tobytes())


def main() -> None:
    import pypdfium2

    path, seconds, memory, what, *numbers = sys.argv[1:]
    limit_memory(int(memory))
    allow(int(seconds))
    try:
        pdf = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        say(fault=str(error))
        return
    if what == "texts":
        texts(pdf, int(numbers[0]), int(seconds), pypdfium2.PdfiumError)
    else:
        picture(pdf, int(numbers[0]), int(numbers[1]), pypdfium2.PdfiumError)


if __name__ == "__main__":
    main()
