"""EncoderId: which encoder made some vectors. Codecs, indexes, collections and caches record it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, overload

from glie.errors import EncoderError, GlieError, InputError

# encoders whose questions use one dimension more than their pages: encoders/heads.py
WEIGHTED = frozenset({"english", "multilingual"})
DIGEST = re.compile(r"[0-9a-f]{16}")  # a revision that starts like this is a digest of the weights


class Identified(Protocol):
    """Anything with a name and a revision, such as an encoder."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str | None: ...


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderId(Mapping[str, str | None]):
    """Name and revision of an encoder. Without a revision it stands for any revision.

    It is also a read-only mapping with the keys "name" and "revision". This is the older form:
    files and JSON still use it (`to_dict`).

    >>> EncoderId("minilm", "722ab47901980717").name
    'minilm'
    >>> EncoderId("minilm")["revision"] is None
    True
    """

    name: str
    revision: str | None = None

    @property
    def weighted(self) -> bool:
        """Whether the last dimension of its vectors serves questions alone."""
        return self.name in WEIGHTED

    @overload
    @classmethod
    def of(cls, given: None) -> None: ...

    @overload
    @classmethod
    def of(cls, given: Identified | Mapping[str, Any] | str) -> EncoderId: ...

    @classmethod
    def of(cls, given: Identified | Mapping[str, Any] | str | None) -> EncoderId | None:
        """The identity of an encoder: from its name, a mapping with name and revision, or the
        encoder itself. None stays None."""
        if given is None or isinstance(given, EncoderId):
            return given
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, Mapping):
            name, revision = given.get("name"), given.get("revision")
        elif hasattr(given, "revision"):  # a path has a name, and is no encoder
            name, revision = getattr(given, "name", None), given.revision
        else:
            name = revision = None
        if isinstance(name, str) and (revision is None or isinstance(revision, str)):
            return cls(name, revision)
        raise InputError(f"encoder: expected a name, or a name and a revision, found {given!r}")

    def matches(self, other: EncoderId) -> bool:
        """Whether both stand for the same weights. A missing revision matches any. Equal digests
        of the weights match under any name: a folder may have moved."""
        known = {self.revision, other.revision} - {None}
        if len(known) > 1:
            return False
        moved = self.revision == other.revision and DIGEST.match(self.revision or "")
        return self.name == other.name or bool(moved)

    def to_dict(self) -> dict[str, str | None]:
        """The form that is written to files and JSON."""
        return {"name": self.name, "revision": self.revision}

    def __getitem__(self, key: str) -> str | None:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return 2

    def __hash__(self) -> int:
        return hash((self.name, self.revision))

    def __str__(self) -> str:
        revision = "no revision" if self.revision is None else f"revision {self.revision}"
        return f"encoder {self.name!r} ({revision})"


def check_match(
    recorded: EncoderId | None,
    found: EncoderId | None,
    what: str,
    remedy: str,
    error: type[GlieError] = EncoderError,
) -> None:
    """Raise `error` unless both are the same encoder, or both are unknown. `what` begins the
    message, `remedy` ends it."""
    if recorded is not None and found is not None:
        if recorded.matches(found):
            return
    elif recorded is found:
        return
    expected, other = (str(one or "an encoder that was not named") for one in (recorded, found))
    raise error(f"{what} {expected}, not {other}; {remedy}")


class EncodedPages(Protocol):
    """Pages that may record their encoder: an index, or a collection in an engine."""

    @property
    def path(self) -> object: ...

    @property
    def encoder(self) -> EncoderId | None: ...

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]: ...


def recorded_encoder(pages: EncodedPages) -> EncoderId:
    """The encoder that made the pages; raises EncoderError if they do not record it."""
    if pages.encoder is None:
        raise EncoderError(
            f"{pages.path}: it does not name the encoder that made its vectors; use it from "
            "Python: glie.Index.open(...), with vectors of your own"
        )
    return pages.encoder


def check_encoder(pages: EncodedPages, encoder: Identified) -> None:
    """Refuse an encoder that did not make the pages."""
    recorded, remedy = recorded_encoder(pages), "use that one, or index the documents again"
    check_match(recorded, EncoderId.of(encoder), f"{pages.path}: made with", remedy)
