"""The folder of an index: manifest, files, and the writer's lock.

A change becomes visible when its manifest is renamed into place. A process that is killed at any
moment leaves the state of the last commit, and perhaps files that no manifest names. The next
writer removes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from glie.codec.codec import Codec
from glie.codec.config import CodecVersionError
from glie.codec.readout.shared import CodebookError, is_registered
from glie.codec.store import (
    CONFIG,
    config_file,
    from_files,
    from_settings,
    read_files,
    settings_of,
    to_files,
)
from glie.errors import (
    IndexFolderError,
    InputError,
    LockedError,
)
from glie.identity import EncoderId
from glie.index.format import VERSION, OtherVersionError, damaged
from glie.storage import digest_of, json_digest, rename_durably, sync, write_durably

MANIFEST = "manifest.json"
COPY = "manifest.copy"  # of the manifest, for a repair
SEGMENTS = "segments"
ASIDE = "damaged"  # files that a repair could not read; not part of the index
CODEC = "codec"
DOCUMENTS = "documents"  # uploaded to the index
MAKING = ".making"  # suffix of an index that appears when it is complete
LOCK = "lock"
WRITER = "writer.json"
SERVER = "server.json"  # where the `glie serve` of this index listens
FORMAT = "glie-index"
OWN_FILE = re.compile(r"\d{8,}\.(seg|img|del|sig|fnd|lex|col)")
ORPHANED = (
    "an index that has lost its manifest.json and the copy of it; restore one of them from a backup"
)
WITH_CANDIDATES = 2  # the version of a manifest that names candidate files
WITH_TEXT = 3  # the version of one whose pages may have postings
WITH_COLUMNS = 4  # the version of one with columns of metadata
CANDIDATES_KEY, PQ_KEY = "finder", "signatures"  # their keys in the manifest


@dataclasses.dataclass(frozen=True)
class SegmentEntry:
    """A segment in the manifest. Files are named by numbers, not by paths."""

    number: int  # segments/NNNNNNNN.seg
    pages: int
    checksum: int  # of the segment's header, which has the checksums of its sections
    images: int | None = None  # segments/NNNNNNNN.img
    tombstones: int | None = None  # segments/NNNNNNNN.del
    deleted: int = 0
    pq_codes: int | None = None  # segments/NNNNNNNN.sig, if the index has candidates
    postings: int | None = None  # segments/NNNNNNNN.lex, if one of the pages has text
    columns: int | None = None  # segments/NNNNNNNN.col, of a large segment


@dataclasses.dataclass(frozen=True)
class CandidatesEntry:
    """The candidate index in the manifest."""

    number: int  # segments/NNNNNNNN.fnd
    checksum: int  # of the file
    pages: int  # of the index when it was fitted


@dataclasses.dataclass(frozen=True)
class TextEntry:
    """How the text of pages is divided into terms."""

    language: str | None  # whose stems the terms are; None: they are not stemmed


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The committed state of an index."""

    codec: Mapping[str, Any]
    encoder: Mapping[str, Any] | None = None
    dim: int | None = None
    generation: int = 0
    next_number: int = 1
    segments: tuple[SegmentEntry, ...] = ()
    candidates: CandidatesEntry | None = None
    text: TextEntry | None = None  # once a page with text was added

    def to_json(self) -> str:
        """The text of the manifest file."""
        body = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        candidates, text = body.pop("candidates"), body.pop("text")
        pq_codes = [entry.pop("pq_codes") for entry in body["segments"]]
        if candidates is not None:  # without candidates, the manifest has version 1
            body |= {"version": WITH_CANDIDATES, CANDIDATES_KEY: candidates}
            for entry, number in zip(body["segments"], pq_codes, strict=True):
                entry[PQ_KEY] = number
        if text is None:
            for entry in body["segments"]:
                del entry["postings"]
        else:
            body |= {"version": WITH_TEXT, "text": text}
        if any(entry["columns"] is not None for entry in body["segments"]):
            body["version"] = WITH_COLUMNS
        else:
            for entry in body["segments"]:
                del entry["columns"]
        return json.dumps(
            {**body, "checksum": json_digest(body, ascii=False)}, indent=1, ensure_ascii=False
        )

    @classmethod
    def read(cls, folder: Path, file: str = MANIFEST) -> Manifest:
        """Read and check the manifest of a folder, or its copy."""
        path = folder / file
        try:
            body = json.loads(path.read_bytes())
            found = body.pop("checksum")
            name, version = body.pop("format"), body.pop("version")
        except FileNotFoundError:
            if (folder / COPY).exists() and file == MANIFEST:
                raise damaged(path, "the file is missing") from None
            if Folder(folder)._has_segments():
                raise IndexFolderError(f"{folder}: {ORPHANED}") from None
            within = sorted(folder.glob(f"*/{MANIFEST}"))
            if within:
                raise IndexFolderError(
                    f"{folder}: a folder of {len(within)} indexes, expected one of them, such as "
                    f"{within[0].parent}"
                ) from None
            what = "is not an index (no manifest.json)" if folder.exists() else "does not exist"
            raise IndexFolderError(
                f"{folder}: {what}; make one with `glie index DOCUMENTS --to NAME`"
            ) from None
        except NotADirectoryError:
            raise IndexFolderError(f"{folder}: a file; an index is a folder") from None
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise damaged(path, "it is not the JSON of an index") from None
        except OSError as error:
            raise IndexFolderError(f"{path}: cannot be read: {error.strerror}") from None
        if name != FORMAT:
            raise damaged(path, f"format {name!r}, expected {FORMAT!r}")
        if version not in (VERSION, WITH_CANDIDATES, WITH_TEXT, WITH_COLUMNS):
            raise OtherVersionError(
                f"{path}: written in format version {version!r}, this glie reads {VERSION} to "
                f"{WITH_COLUMNS}; upgrade glie"
            )
        try:
            if found != json_digest({"format": name, "version": version, **body}, ascii=False):
                raise damaged(path, "it does not match its checksum")
            segments = tuple(_segment(entry) for entry in body.pop("segments"))
            candidates = body.pop(CANDIDATES_KEY, None)
            candidates = None if candidates is None else CandidatesEntry(**candidates)
            text = body.pop("text", None)
            text = None if text is None else TextEntry(**text)
            manifest = cls(**body, segments=segments, candidates=candidates, text=text)
            manifest.check()
        except (KeyError, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise damaged(path, str(error)) from None
        return manifest

    def check(self) -> None:
        """Raise TypeError unless every value has its type."""
        numbers = [self.generation, self.next_number]
        numbers += [] if self.dim is None else [self.dim]
        for entry in self.segments:
            numbers += [entry.number, entry.pages, entry.checksum, entry.deleted]
            beside = entry.images, entry.tombstones, entry.pq_codes, entry.postings, entry.columns
            numbers += [n for n in beside if n is not None]
            if entry.deleted and entry.tombstones is None:
                raise TypeError(f"{entry.deleted} pages are deleted, but no file says which")
            if (entry.pq_codes is None) != (self.candidates is None):
                raise TypeError(
                    "expected a candidate index with PQ codes for every segment, or neither"
                )
        numbers += [] if self.candidates is None else dataclasses.astuple(self.candidates)
        for number in numbers:
            if type(number) is not int or not 0 <= number < 2**64:
                raise TypeError(f"expected a whole number, found {number!r}")
        for value in (self.codec, self.encoder or {}):
            if not isinstance(value, dict):
                raise TypeError(f"expected an object, found {value!r}")
        if self.text is not None and not isinstance(self.text.language, str | None):
            raise TypeError(f"expected a language or null, found {self.text.language!r}")
        if self.text is None and any(entry.postings is not None for entry in self.segments):
            raise TypeError("a segment has postings, but nothing says how they were made")
        try:
            EncoderId.of(self.encoder)
        except InputError as error:
            raise TypeError(str(error)) from None
        if self.encoder is not None and "revision" not in self.encoder:
            raise TypeError(f"expected an encoder's revision, found {self.encoder!r}")


def _segment(entry: Mapping[str, Any]) -> SegmentEntry:
    """The entry of a segment, from its keys in the manifest."""
    return SegmentEntry(**{"pq_codes" if k == PQ_KEY else k: v for k, v in entry.items()})


def _codec_digest(files: Mapping[str, bytes]) -> str:
    """Of the settings and then the other files, end to end."""
    names = sorted(files, key=lambda name: (name != CONFIG, name))
    return digest_of(files[name] for name in names)


class Folder:
    """Paths, locking and durable writes inside one index folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the process may change its directory

    def file(self, number: int, kind: str) -> Path:
        """The path of a file in `segments/`."""
        return self.path / SEGMENTS / f"{number:08d}.{kind}"

    @property
    def inside(self) -> bool:
        """Whether its codebook is kept in the index, also if others share it."""
        return (self.path / CODEC).is_dir()

    def make(
        self,
        codec: Codec,
        encoder: EncoderId | None,
        text: TextEntry | None = None,
        *,
        inside: bool = False,
    ) -> None:
        """Make a new index; the folder must be absent or empty."""
        if encoder is not None:
            codec.check_encoder(encoder)
        if self.path.exists() and not self.path.is_dir():
            raise IndexFolderError(f"{self.path}: a file; an index is a folder")
        if (self.path / MANIFEST).exists():
            raise IndexFolderError(
                f"{self.path}: already an index; add to it with `glie add`, or choose another name"
            )
        if (self.path / COPY).exists():
            raise damaged(self.path / MANIFEST, "the file is missing")
        if self._has_segments():
            raise IndexFolderError(f"{self.path}: {ORPHANED}, or choose another name")
        # files of an interrupted creation may be there
        own = {SEGMENTS, LOCK, WRITER, MANIFEST + ".new", COPY + ".new"}
        if (self.path / SEGMENTS).is_dir() and (self.path / LOCK).exists():
            own.add(CODEC)  # without the others it may be a saved codec
        if self.path.exists() and any(p.name not in own for p in self.path.iterdir()):
            raise IndexFolderError(f"{self.path}: not empty and not an index; choose another name")
        try:
            (self.path / SEGMENTS).mkdir(parents=True, exist_ok=True)
            sync(self.path.parent)
        except OSError as error:
            raise IndexFolderError(f"{self.path}: cannot be made: {error.strerror}") from None
        with self.writing():
            if (self.path / MANIFEST).exists():  # another process has made it
                raise IndexFolderError(f"{self.path}: already an index, made just now")
            made_by = encoder or codec.encoder
            recorded = None if made_by is None else made_by.to_dict()
            self.commit(Manifest(self.keep(codec, inside=inside), recorded, text=text))

    def _has_segments(self) -> bool:
        """Whether there are files of an index. They are written only after a manifest."""
        with contextlib.suppress(OSError):
            return any(OWN_FILE.fullmatch(p.name) for p in (self.path / SEGMENTS).iterdir())
        return False

    def keep(self, codec: Codec, *, inside: bool = False) -> dict[str, Any]:
        """Write the files of a codec, if it has any; returns its entry for the manifest. A shared
        codebook is only named there, unless this index keeps its codebook `inside`, now and with
        all later codecs."""
        settings, files = settings_of(codec), to_files(codec)
        book, folder = codec.codebook, self.path / CODEC
        try:
            if inside and book is not None:
                folder.mkdir(exist_ok=True)  # also where the first pages choose the codebook
            if len(files) == 1:  # the settings are all
                return settings
            if book is not None and not self.inside and is_registered(book):
                return settings
            folder.mkdir(exist_ok=True)
            for name, data in files.items():
                write_durably(folder / name, data)
            sync(folder)
        except OSError as error:
            raise IndexFolderError(f"{folder}: cannot be written: {error.strerror}") from None
        return {**settings, "fitted": _codec_digest(files)}

    def codec(self, manifest: Manifest) -> Codec:
        """The codec of the index: its settings are in the manifest, the rest in files."""
        settings = dict(manifest.codec)
        named = settings.pop("fitted", None)
        try:
            if named is None:
                return from_settings(settings, str(self.path))
            folder = self.path / CODEC
            files = read_files(folder)
            if named != _codec_digest(files) and CONFIG in files:
                # an interrupted commit may have left the settings of the state that it was to make
                files[CONFIG] = config_file(settings)
            if named != _codec_digest(files):
                raise damaged(folder, "it is not the codec that the manifest names")
            return from_files(files, str(folder))
        except OSError as error:
            raise damaged(self.path / CODEC, f"it cannot be read: {error.strerror}") from None
        except CodebookError as error:
            made_by = EncoderId.of(manifest.encoder)
            whose = "" if made_by is None else f" (its vectors are of {made_by})"
            raise OtherVersionError(f"{error}{whose}") from None
        except CodecVersionError as error:
            raise OtherVersionError(str(error)) from None
        except InputError as error:
            raise damaged(self.path, str(error)) from None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock. The system releases it when the process dies."""
        import filelock  # a search needs none

        lock = filelock.FileLock(self.path / LOCK, timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise LockedError(
                f"{self.path}: {self._holder()} is writing; try again later"
            ) from None
        except OSError as error:
            raise IndexFolderError(f"{self.path}: cannot be written: {error.strerror}") from None
        try:
            note = {"process": os.getpid(), "host": socket.gethostname(), "since": time.ctime()}
            with contextlib.suppress(OSError):  # only for the message to others
                (self.path / WRITER).write_text(json.dumps(note))
            yield
        finally:
            with contextlib.suppress(OSError):
                (self.path / WRITER).unlink(missing_ok=True)
            lock.release()

    def _holder(self) -> str:
        try:
            note = json.loads((self.path / WRITER).read_text())
            return f"process {note['process']} on {note['host']} (since {note['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def write(self, number: int, kind: str, data: bytes) -> None:
        """Write a new file in `segments/`, and wait until it is on disk."""
        try:
            write_durably(self.file(number, kind), data)
        except OSError as error:
            raise IndexFolderError(
                f"{self.file(number, kind)}: cannot be written: {error.strerror}; the index keeps "
                "its last committed state"
            ) from None

    def commit(self, manifest: Manifest) -> None:
        """Commit a state: write its manifest beside the old one, wait for the disk, rename it."""
        new, data = self.path / (MANIFEST + ".new"), manifest.to_json().encode()
        try:
            sync(self.path / SEGMENTS)
            write_durably(new, data)
            new.replace(self.path / MANIFEST)
        except OSError as error:
            raise IndexFolderError(
                f"{self.path}: cannot be written: {error.strerror}; the index keeps its last "
                "committed state"
            ) from None
        try:
            sync(self.path)
        except OSError as error:
            raise IndexFolderError(
                f"{self.path}: changed, but the disk did not confirm it: {error.strerror}; a power "
                "cut now may undo the change"
            ) from None
        self._keep_copy(data)

    def _keep_copy(self, data: bytes) -> None:
        """Renew the copy of the manifest. An outdated copy would name files that are removed, so
        it is deleted if this fails."""
        place, new = self.path / COPY, self.path / (COPY + ".new")
        with contextlib.suppress(OSError):
            if place.exists() and place.read_bytes() == data:
                return
        try:
            new.write_bytes(data)
            new.replace(place)
        except OSError:
            with contextlib.suppress(OSError):
                place.unlink(missing_ok=True)

    def named(self, manifest: Manifest) -> set[str]:
        """The names of the files in `segments/` that are part of a state."""
        names = {
            self.file(number, kind).name
            for entry in manifest.segments
            for number, kind in (
                (entry.number, "seg"),
                (entry.images, "img"),
                (entry.tombstones, "del"),
                (entry.pq_codes, "sig"),
                (entry.postings, "lex"),
                (entry.columns, "col"),
            )
            if number is not None
        }
        if manifest.candidates is not None:
            names.add(self.file(manifest.candidates.number, "fnd").name)
        return names

    def strays(self, manifest: Manifest) -> list[str]:
        """The names of index files in `segments/` that are not: superseded, or never committed."""
        named, found = self.named(manifest), list[str]()
        with contextlib.suppress(OSError):  # an unreadable folder has no strays to report
            (self.path / SEGMENTS).mkdir(
                exist_ok=True
            )  # copying tools may leave out an empty folder
            found = [path.name for path in (self.path / SEGMENTS).iterdir()]
        return [name for name in found if OWN_FILE.fullmatch(name) and name not in named]

    def remove_strays(self, manifest: Manifest) -> None:
        """Delete them, once the copy of the manifest does not name them."""
        self._keep_copy(manifest.to_json().encode())
        for name in self.strays(manifest):
            # Windows refuses while a reader has it mapped; the next writer tries again
            with contextlib.suppress(OSError):
                (self.path / SEGMENTS / name).unlink()

    def size(self) -> int:
        """Bytes of all files, without those that a repair has set aside and a server's address."""
        address = self.path / SERVER
        beside = address.stat().st_size if address.exists() else 0
        return _size(self.path) - _size(self.path / ASIDE) - beside

    def codec_size(self) -> int:
        """Of these, the bytes of the codec's files."""
        return _size(self.path / CODEC)

    def documents_size(self) -> int:
        """Of these, the bytes of uploaded documents."""
        return _size(self.path / DOCUMENTS)


@contextlib.contextmanager
def finished(place: Path) -> Iterator[Path]:
    """A folder beside `place` to make an index in, renamed to `place` in the end. What a killed
    process has left there is removed, and so is what an error leaves."""
    making = place.with_name(f"{place.name}{MAKING}")
    if making.exists():
        with Folder(making).writing():
            pass  # raises if another process is still at it
        shutil.rmtree(making)
    try:
        yield making
        rename_durably(making, place)
    except OSError as error:
        raise IndexFolderError(f"{place}: cannot be made: {error.strerror or error}") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a writer may have removed it
            total += path.stat().st_size if path.is_file() else 0
    return total
