"""A codec on disk and on the Hugging Face Hub: config.json and the files of its read-out."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from glie.codec.card import model_card
from glie.codec.codec import Codec
from glie.codec.config import CodecConfig, CodecVersionError
from glie.codec.readout.base import AnchorsOnly, Readout
from glie.codec.readout.generative import WEIGHTS, Generative
from glie.codec.readout.residual import CODEBOOK, Residual
from glie.codec.readout.shared import CodebookError
from glie.codec.readout.transform import COORDINATES, Transform
from glie.errors import CodecError, InputError, MissingExtraError
from glie.identity import EncoderId
from glie.storage import digest_of, json_digest

CONFIG = "config.json"
PARTS = (WEIGHTS, CODEBOOK, COORDINATES)  # files that a codec may have beside its settings
CARD = "README.md"
FORMAT = "glie-codec"
VERSION = 1
# A key that only the settings of this read-out have; without any, a codec is anchors alone. The
# files of a fit had no key of their own, so theirs is "dim". A new read-out must write a key that
# no other read-out writes; the first key found decides.
READOUTS: dict[str, type[Readout]] = {
    "codebook": Residual,
    "coordinates": Transform,
    "dim": Generative,
}


def settings_of(codec: Codec) -> dict[str, Any]:
    """The settings of a codec as files hold them; they name its codebook, if it has one."""
    return {**codec.config.to_dict(), **codec.readout.settings()}


def from_settings(settings: Mapping[str, Any], place: str) -> Codec:
    """A codec that its settings describe in full."""
    return from_files({CONFIG: _json({"format": FORMAT, "version": VERSION, **settings})}, place)


def config_file(settings: Mapping[str, Any]) -> bytes:
    """The content of config.json for these settings."""
    return _checked_json({"format": FORMAT, "version": VERSION, **settings})


def to_files(codec: Codec) -> dict[str, bytes]:
    """The files of a codec by name: config.json and those of its read-out."""
    described, files = codec.readout.to_files()
    return {CONFIG: config_file({**settings_of(codec), **described}), **files}


def codec_digest(codec: Codec) -> str:
    """A digest of a codec's settings and weights."""
    return digest_of(name.encode() + data for name, data in sorted(to_files(codec).items()))


def from_files(files: Mapping[str, bytes], place: str) -> Codec:
    """The reverse of `to_files`; `place` is what an error names."""
    try:
        settings = json.loads(files[CONFIG])
        found = settings.pop("format"), settings.pop("version")
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError):
        raise CodecError(f"{place}: not a codec: no {CONFIG} of one") from None
    if found[0] != FORMAT:
        raise CodecError(f"{place}: format {found[0]!r}, expected {FORMAT!r}")
    if found[1] != VERSION:
        raise CodecVersionError(
            f"{place}: a codec of version {found[1]!r}, this glie reads {VERSION}; upgrade glie"
        )
    expected = settings.pop("checksum", None)  # settings written by hand have none
    actual = json_digest({"format": FORMAT, "version": VERSION, **settings})
    codec = _described(settings, files, place)
    if expected not in (None, actual):
        raise CodecError(
            f"{place}: damaged: {CONFIG} does not match its checksum; restore it, or take the key "
            "`checksum` out of it if it was changed on purpose"
        )
    return codec


def _described(settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Codec:
    """The codec of these settings, which are used up."""
    try:
        kinds = (kind for key, kind in READOUTS.items() if key in settings)
        readout = next(kinds, AnchorsOnly).from_files(settings, files, place)
        return Codec.from_config(CodecConfig.from_dict(settings), readout)
    except (CodecVersionError, CodebookError) as error:
        raise type(error)(f"{place}: {error}") from None
    except KeyError as error:
        raise CodecError(f"{place}: damaged: {error} is missing") from None
    except (InputError, TypeError, AttributeError, ValueError) as error:
        raise CodecError(f"{place}: damaged: {error}") from None


def save(codec: Codec, folder: Path) -> None:
    """Write all files under other names, then rename them into place."""
    files = to_files(codec)
    check_place(folder)
    try:
        folder.mkdir(exist_ok=True)
        if not (folder / CONFIG).exists():
            for name in PARTS:  # of an interrupted save
                (folder / name).unlink(missing_ok=True)
        for name, data in files.items():
            (folder / f"{name}.new").write_bytes(data)
        for name in (*PARTS, CONFIG):  # config.json last: it names the others
            if name in files:
                (folder / f"{name}.new").replace(folder / name)
        for name in set(PARTS) - set(files):  # of the codec that was replaced
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise CodecError(f"{folder}: cannot be written: {error.strerror}") from None


def check_place(folder: Path) -> None:
    """Refuse a folder that cannot be written, or holds something other than a codec. One that is
    not there is made and removed again: what is to be saved may fail before."""
    if folder.is_file():
        raise CodecError(f"{folder}: a file; a codec is a folder")
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        # an interrupted save may leave .new files, or weights beside a config.json.new
        others = {path.name for path in folder.iterdir() if not path.name.endswith(".new")}
        config = f"{CONFIG}.new" if others <= set(PARTS) else CONFIG
        found = json.loads((folder / config).read_bytes())["format"] if others else FORMAT
        if new:
            folder.rmdir()
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        found = None
    except OSError as error:
        raise CodecError(f"{folder}: cannot be written: {error.strerror}") from None
    if found != FORMAT:
        raise CodecError(f"{folder}: not empty and not a codec; choose another name")


def shipped(encoder: EncoderId) -> Codec | None:
    """The codec that comes with glie for an encoder."""
    place = resources.files("glie.codec").joinpath("shipped")
    if not place.is_dir() or encoder.name not in [entry.name for entry in place.iterdir()]:
        return None
    place = place.joinpath(encoder.name)
    files = {name: place.joinpath(name).read_bytes() for name in (CONFIG, WEIGHTS)}
    codec = from_files(files, f"the codec shipped for {encoder.name}")
    assert codec.encoder is not None
    return codec if codec.encoder.matches(encoder) else None


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a codec that exist in a folder."""
    return {
        name: (folder / name).read_bytes() for name in (CONFIG, *PARTS) if (folder / name).exists()
    }


def load(folder: Path) -> Codec:
    """The codec that `save` wrote."""
    try:
        files = read_files(folder)
    except OSError as error:
        raise CodecError(f"{folder}: cannot be read: {error.strerror}") from None
    if CONFIG not in files:
        what = f"not a codec (no {CONFIG})" if folder.exists() else "no such folder"
        raise CodecError(f"{folder}: {what}; `glie fit` makes one")
    try:
        return from_files(files, str(folder))
    except CodecError:
        # a save over this codec may have been interrupted between its last two renames
        try:
            files[CONFIG] = (folder / f"{CONFIG}.new").read_bytes()
            return from_files(files, str(folder))
        except (CodecError, OSError):
            pass
        raise


def write_card(codec: Codec, folder: Path, name: str | None = None) -> None:
    """Write a model card, unless there is one. `name` is that of the repository."""
    if (folder / CARD).exists():
        return
    card = model_card(codec, name) if name else model_card(codec)
    try:
        (folder / CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise CodecError(f"{folder / CARD}: cannot be written: {error.strerror}") from None


def from_hub(name: str, **hub: Any) -> Codec:
    """Download the files of a codec from its repository."""
    huggingface_hub = _hub()
    try:
        folder = huggingface_hub.snapshot_download(name, allow_patterns=[CONFIG, *PARTS], **hub)
    except Exception as error:  # each transport raises its own errors
        reason = str(error).strip().split("\n")[0]
        raise CodecError(
            f"{name}: no such folder, and could not be downloaded from the Hub: {reason}"
        ) from None
    return load(Path(folder))


def to_hub(codec: Codec, name: str, *, private: bool, token: str | None) -> str:
    """Make the repository, unless it exists, and upload the codec in one commit."""
    api = _hub().HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save(codec, Path(folder))
        write_card(codec, Path(folder), name)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=name, folder_path=os.fspath(folder), commit_message="Add a glie codec"
            )
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            raise CodecError(f"{name}: could not be uploaded: {reason}") from None
    return str(done.commit_url)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("the Hugging Face Hub", "hub") from None
    return huggingface_hub


def _json(settings: Mapping[str, Any]) -> bytes:
    return json.dumps(settings, indent=1, ensure_ascii=False).encode()


def _checked_json(settings: Mapping[str, Any]) -> bytes:
    return _json({**settings, "checksum": json_digest(settings)})
