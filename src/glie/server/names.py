"""Names for uploaded files: whatever a client sends becomes one plain name in one folder."""

from __future__ import annotations

import re
import unicodedata

from glie.documents import SUFFIXES
from glie.errors import DocumentError

MOST_BYTES = 120  # of a name; file systems take 255, and numbers may be added
DEVICES = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}


def safe_name(given: str) -> str:
    """The last part of a path as a file name that is harmless on every system.

    >>> safe_name("../../etc/Annual Report.PDF"), safe_name("C:\\\\x\\\\nul.txt")
    ('Annual Report.PDF', '_nul.txt')
    """
    name = re.split(r"[/\\]", unicodedata.normalize("NFC", given))[-1]
    # what is not printable (control characters, marks that turn the reading direction, halves of
    # letters), and what Windows refuses
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
    """The name for a second, third, … document of the same name.

    >>> numbered("report.pdf", 2)
    'report (2).pdf'
    """
    stem, _, suffix = name.rpartition(".")
    return f"{stem} ({number}).{suffix}"
