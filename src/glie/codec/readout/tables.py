"""A table of a read-out as a file: tensors in safetensors, and what is no tensor as JSON in its
metadata, under a key that names the format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy.typing as npt

from glie.errors import CodecError
from glie.identity import EncoderId

Table = TypeVar("Table")


def table_bytes(form: str, tensors: dict[str, npt.NDArray[Any]], settings: dict[str, Any]) -> bytes:
    """The file of a table. An EncoderId among the settings is written as a mapping."""
    from safetensors.numpy import save

    encoder = settings.get("encoder")
    settings = {**settings, "encoder": None if encoder is None else encoder.to_dict()}
    metadata = {form: json.dumps(settings, ensure_ascii=False, sort_keys=True)}
    return bytes(save(tensors, metadata))


def has_form(data: bytes, form: str) -> bool:
    """Whether a file is a table of this format; False for what is no such file at all."""
    try:
        return form in _metadata(data)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return found


def table_of(
    data: bytes,
    form: str,
    what: str,
    place: str,
    make: Callable[[Mapping[str, npt.NDArray[Any]], dict[str, Any]], Table],
) -> Table:
    """What `make` makes of the tensors and settings of such a file; its ValueError, too, says that
    the file is damaged. `what` a file without the format is not, and `place`, are for errors."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        settings = json.loads(_metadata(data)[form])
        settings["encoder"] = EncoderId.of(settings.get("encoder"))
        return make(load(data), settings)
    except KeyError:
        raise CodecError(f"{place}: not {what}") from None
    except (SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CodecError(f"{place}: damaged: {error}") from None
