"""A codec on disk and on the Hugging Face Hub: config.json and model.safetensors, no pickle."""

from __future__ import annotations

import functools
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
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.generative import FitScores, Fitted
from glie.errors import CodecError, InputError, MissingExtraError
from glie.identity import EncoderId
from glie.storage import digest, digest_of, json_digest

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CODEBOOK = "codebook.safetensors"
PARTS = (WEIGHTS, CODEBOOK)  # what a codec may have beside its settings
CARD = "README.md"
FORMAT = "glie-codec"
VERSION = 1


def settings_of(codec: Codec) -> dict[str, Any]:
    """The settings of a codec; they name its codebook, if it has one."""
    settings = codec.config.to_dict()
    return settings if codec.codebook is None else {**settings, "codebook": codec.codebook.digest}


def from_settings(settings: Mapping[str, Any], place: str) -> Codec:
    """A codec that is described by its settings alone."""
    return from_files({CONFIG: _json({"format": FORMAT, "version": VERSION, **settings})}, place)


def to_files(codec: Codec) -> dict[str, bytes]:
    """The contents of the files that a codec is saved as."""
    settings: dict[str, Any] = {"format": FORMAT, "version": VERSION, **settings_of(codec)}
    if codec.codebook is not None and codec.codebook.digest != _shipped_digest():
        return {CONFIG: _checked_json(settings), CODEBOOK: codec.codebook.to_bytes()}
    fitted = codec.fitted
    if fitted is None:
        return {CONFIG: _checked_json(settings)}
    from safetensors.numpy import save

    weights = save(fitted.tensors())
    settings |= {
        "dim": fitted.dim,
        "weights": digest(weights),
        "cascade": codec.cascade,
        "encoder": None if fitted.encoder is None else fitted.encoder.to_dict(),
        "budgets": [vars(budget) for budget in fitted.budgets],
        "notes": fitted.notes,
    }
    return {CONFIG: _checked_json(settings), WEIGHTS: weights}


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
    expected = settings.pop("checksum", None)  # what is written by hand has none
    found_digest = json_digest({"format": FORMAT, "version": VERSION, **settings})
    codec = _described(settings, files, place)
    if expected not in (None, found_digest):
        raise CodecError(
            f"{place}: damaged: {CONFIG} does not match its checksum; restore it, or take the key "
            "`checksum` out of it if it was changed on purpose"
        )
    return codec


def _described(settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Codec:
    """The codec of these settings, which are used up."""
    try:
        if "codebook" in settings:
            book = _codebook(files, settings.pop("codebook"), place)
            return Codec(config=CodecConfig.from_dict(settings), codebook=book)
        if "dim" not in settings:
            return Codec(config=CodecConfig.from_dict(settings))
        dim, cascade = settings.pop("dim"), settings.pop("cascade")
        weights = settings.pop("weights", None)  # the first codecs did not name them
        rest = {
            "budgets": tuple(FitScores(**budget) for budget in settings.pop("budgets")),
            "encoder": EncoderId.of(settings.pop("encoder")),
            "notes": settings.pop("notes"),
        }
        if weights is not None and weights != digest(files[WEIGHTS]):
            raise InputError(f"{WEIGHTS} is not the file that {CONFIG} names")
        fitted = _fitted(files[WEIGHTS], rest)
        if fitted.dim != dim or not fitted.budgets or type(cascade) is not bool:
            raise InputError(f"{CONFIG} does not describe {WEIGHTS}")
        return Codec(config=CodecConfig.from_dict(settings), fitted=fitted, cascade=cascade)
    except CodecVersionError as error:
        raise CodecVersionError(f"{place}: {error}") from None
    except KeyError as error:
        raise CodecError(f"{place}: damaged: {error} is missing") from None
    except (InputError, TypeError, AttributeError, ValueError) as error:
        raise CodecError(f"{place}: damaged: {error}") from None


def _codebook(files: Mapping[str, bytes], named: str, place: str) -> Codebook:
    """The codebook that a codec names: beside it, or the one that comes with glie."""
    if CODEBOOK in files:
        book = Codebook.from_bytes(files[CODEBOOK], f"{place}, {CODEBOOK}")
    elif named == _shipped_digest():
        book = Codebook.shipped()
    else:
        raise CodecVersionError(
            f"it reads with the codebook {named}, which this version of glie does not carry "
            f"({_shipped_digest()}); index the documents again, or use the version that wrote it"
        )
    if book.digest != named:
        raise InputError(f"{CODEBOOK} is not the file that {CONFIG} names")
    return book


@functools.cache
def _shipped_digest() -> str:
    return Codebook.shipped().digest


def _fitted(weights: bytes, rest: dict[str, Any]) -> Fitted:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(weights)
    except SafetensorError as error:
        raise InputError(f"{WEIGHTS}: {error}") from None
    return Fitted.from_tensors(tensors, **rest)


def save(codec: Codec, folder: Path) -> None:
    """Write the files, and rename them into place when all are whole."""
    files = to_files(codec)
    check_place(folder)
    try:
        if not (folder / CONFIG).exists():
            for name in PARTS:  # of a save that was cut off
                (folder / name).unlink(missing_ok=True)
        for name, data in files.items():
            (folder / f"{name}.new").write_bytes(data)
        for name in (*PARTS, CONFIG):  # what is named, then what names it
            if name in files:
                (folder / f"{name}.new").replace(folder / name)
        for name in set(PARTS) - set(files):  # of a codec that was here before
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise CodecError(f"{folder}: cannot be written: {error.strerror}") from None


def check_place(folder: Path) -> None:
    """Make the folder, unless something that is no codec lies there."""
    if folder.is_file():
        raise CodecError(f"{folder}: a file; a codec is a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # what a save that was cut off leaves is in nobody's way; weights alone are, unless the
        # settings that name them are still beside them
        others = {path.name for path in folder.iterdir() if not path.name.endswith(".new")}
        config = f"{CONFIG}.new" if others <= set(PARTS) else CONFIG
        found = json.loads((folder / config).read_bytes())["format"] if others else FORMAT
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        found = None
    except OSError as error:
        raise CodecError(f"{folder}: cannot be written: {error.strerror}") from None
    if found != FORMAT:
        raise CodecError(f"{folder}: not empty and not a codec; choose another name")


def shipped(encoder: EncoderId) -> Codec | None:
    """The packaged codec of an encoder."""
    place = resources.files("glie.codec").joinpath("shipped")
    if not place.is_dir() or encoder.name not in [entry.name for entry in place.iterdir()]:
        return None
    place = place.joinpath(encoder.name)
    files = {name: place.joinpath(name).read_bytes() for name in (CONFIG, WEIGHTS)}
    codec = from_files(files, f"the codec shipped for {encoder.name}")
    assert codec.encoder is not None
    return codec if codec.encoder.matches(encoder) else None


def read_files(folder: Path) -> dict[str, bytes]:
    """Those of a codec's files that are there."""
    return {
        name: (folder / name).read_bytes() for name in (CONFIG, *PARTS) if (folder / name).exists()
    }


def load(folder: Path) -> Codec:
    """Read what `save` wrote."""
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
        # a save in place of this codec may have been killed between its last two renames
        try:
            files[CONFIG] = (folder / f"{CONFIG}.new").read_bytes()
            return from_files(files, str(folder))
        except (CodecError, OSError):
            pass
        raise


def write_card(codec: Codec, folder: Path, name: str | None = None) -> None:
    """A model card, unless someone has written one. `name` is that of the repository."""
    if (folder / CARD).exists():
        return
    card = model_card(codec, name) if name else model_card(codec)
    try:
        (folder / CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise CodecError(f"{folder / CARD}: cannot be written: {error.strerror}") from None


def from_hub(name: str, **hub: Any) -> Codec:
    """Download a codec, and nothing else of its repository."""
    huggingface_hub = _hub()
    try:
        folder = huggingface_hub.snapshot_download(name, allow_patterns=[CONFIG, *PARTS], **hub)
    except Exception as error:  # each transport raises its own
        reason = str(error).strip().split("\n")[0]
        raise CodecError(
            f"{name}: no such folder, and not to be had from the Hub: {reason}"
        ) from None
    return load(Path(folder))


def to_hub(codec: Codec, name: str, *, private: bool, token: str | None) -> str:
    """Make the repository, if it is new, and upload the codec in one commit."""
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
