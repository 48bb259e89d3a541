"""The encoder that an index or a collection records, loaded again."""

from __future__ import annotations

import os

from glie.encoders import load_encoder
from glie.encoders.base import Encoder
from glie.identity import EncodedPages, EncoderId, check_encoder, recorded_encoder


def encoder_of(pages: EncodedPages, asked: str | os.PathLike[str] | None = None) -> Encoder:
    """Load the encoder that made the pages; raise EncoderError if the weights are others. `asked`
    is where it lies now, if it has moved."""
    encoder = load_recorded(recorded_encoder(pages), asked)
    check_encoder(pages, encoder)
    return encoder


def load_recorded(recorded: EncoderId, asked: str | os.PathLike[str] | None = None) -> Encoder:
    """Load an encoder at its recorded revision: a model on the Hub may have moved on. `asked` is
    another place to load it from."""
    wanted = recorded.name if asked is None else os.fspath(asked)
    return load_encoder(wanted, revision=recorded.revision if wanted == recorded.name else None)
