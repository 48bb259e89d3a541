"""Limits on requests."""

from __future__ import annotations

import dataclasses

from glie.errors import InputError


@dataclasses.dataclass(frozen=True)
class Limits:
    """The most that a server accepts; all are whole numbers of at least 1."""

    upload_bytes: int = 100 << 20  # body of an upload, all files together
    upload_pages: int = 2000  # in one upload
    body_bytes: int = 4 << 20  # body of any other request
    query_characters: int = 2000
    query_vectors: int = 2048
    top: int = 100  # pages a search returns
    searches: int = 4  # at a time; others wait
    waiting: int = 256  # searches that may wait; further ones are refused
    connections: int = 200  # open at a time; a further one takes the place of one that waits
    seconds: int = 20  # for the head of a request, and for each 64 KB of its body and the answer

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                name = field.name
                raise InputError(f"{name}: expected a whole number of at least 1, found {value!r}")
