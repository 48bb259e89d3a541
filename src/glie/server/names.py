"""File names for uploads: what a client sends becomes one safe name in one folder."""

from __future__ import annotations

import re
import unicodedata

from glie.documents import SUFFIXES
from glie.errors import DocumentError

MOST_BYTES = 120  # of a name; file systems allow 255, and a number may be appended
DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}


def safe_name(given: str) -> str:
    """The last part of a path, as a file name that is safe on every system.

    >>> safe_name("../../etc/Annual Report.PDF"), safe_name("C:\\\\x\\\\nul.txt")
    ('Annual Report.PDF', '_nul.txt')
    """
    name = re.split(r"[/\\]", unicodedata.normalize("NFC", given))[-1]
    # replace what is not printable (control characters, marks that change the reading direction,
    # lone surrogates) and what Windows refuses
    name = "".join(c if c.isprintable() and c not in '<>:"|?*#%' else "_" for c in name)
    name = name.strip(" .")
    stem, dot, suffix = name.rpartition(".")
    if not dot or f".{suffix.lower()}" not in SUFFIXES:
        raise DocumentError(
            f"{name[:80] or 'a file without a name'}: not a kind of document that can be read; "
            f"expected one of {' '.join(sorted(SUFFIXES))}"
        )
    stem = stem.rstrip(" .")
    if stem.split(".")[0].lower() in DEVICES or not stem:
        stem = f"_{stem}"
    room = MOST_BYTES - len(suffix) - 1
    stem = stem.encode()[:room].decode(errors="ignore").rstrip(" .")
    return f"{stem}.{suffix}"


def numbered(name: str, number: int) -> str:
    """The name of the second, third, … document of the same name.

    >>> numbered("report.pdf", 2)
    'report (2).pdf'
    """
    stem, _, suffix = name.rpartition(".")
    return f"{stem} ({number}).{suffix}"
