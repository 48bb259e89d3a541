"""Encoders: from pages and questions to vectors.

`load_encoder()` gives the embedded one, all-MiniLM-L6-v2 as a late-interaction retriever: no hub,
no GPU. A path gives the `transformers` text model in that folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from glie.encoders.base import Encoder
from glie.encoders.minilm import embedded
from glie.encoders.text import TextEncoder
from glie.encoders.torch_model import TorchModel
from glie.errors import EncoderError

EMBEDDED = "minilm"

__all__ = ["EMBEDDED", "Encoder", "load_encoder"]


def load_encoder(name: str | os.PathLike[str] | None = None) -> Encoder:
    """The encoder of that name: "minilm" (the default), "minilm-384" (the same, not reduced to
    128 dimensions), or the path of a folder with a `transformers` text model."""
    wanted = EMBEDDED if name is None else os.fspath(name)
    if wanted == EMBEDDED:
        return embedded(reduced=True)
    if wanted == f"{EMBEDDED}-384":
        return embedded(reduced=False)
    if Path(wanted).is_dir():
        return TextEncoder(TorchModel(Path(wanted)), name=str(Path(wanted).resolve()))
    raise EncoderError(
        f"encoder {wanted!r} is unknown: expected {EMBEDDED!r}, '{EMBEDDED}-384' or the path of a "
        "folder with a transformers text model"
    )
