"""What several routes check or show."""

from __future__ import annotations

import glie
from glie.errors import GlieError, InputError
from glie.pages import is_unicode
from glie.server.library import Library, NotShownError
from glie.server.limits import Limits


def check_question(question: str, limits: Limits) -> None:
    """Refuse a question that is empty, not Unicode, or too long."""
    if not question.strip():
        raise InputError("query: the question is empty")
    if not is_unicode(question):
        raise InputError("query: not valid Unicode (a lone surrogate)")
    if len(question) > limits.query_characters:
        found, most = len(question), limits.query_characters
        raise InputError(f"query: {found:,} characters, expected at most {most:,}")


def text_and_note(
    library: Library, index: glie.Index, page_id: str, *, ocr: bool
) -> tuple[str, str | None]:
    """The text of a page, and a note if there is none."""
    try:
        text = library.text(index, page_id, ocr=ocr)
    except NotShownError as error:
        return "", str(error)
    except (GlieError, OSError, IndexError, ValueError):
        text = ""
    return text, None if text.strip() else library.why_no_text(index, page_id)


def text_or_none(value: object) -> str | None:
    """A value of metadata if it is text."""
    return value if isinstance(value, str) else None


def integer_or_none(value: object) -> int | None:
    """A value of metadata if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
