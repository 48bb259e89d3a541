"""How much one request may ask for."""

from __future__ import annotations

import dataclasses

from glie.errors import InputError


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes at most; all are whole numbers of at least 1."""

    upload_bytes: int = 100 << 20  # of the body of an upload, all files together
    upload_pages: int = 2000  # of one upload
    body_bytes: int = 4 << 20  # of the body of any other request
    query_characters: int = 2000
    query_vectors: int = 2048
    top: int = 100  # pages a search returns
    searches: int = 4  # at the same time; others wait
    waiting: int = 256  # searches that may wait; those after them are refused

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                name = field.name
                raise InputError(f"{name}: expected a whole number of at least 1, found {value!r}")
