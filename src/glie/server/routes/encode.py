"""The route that encodes a question: POST /encode, which `glie search` asks."""

from __future__ import annotations

import numpy as np
from fastapi import FastAPI

from glie.errors import InputError
from glie.server import schemas
from glie.server.library import Library
from glie.server.limits import Limits
from glie.server.problems import problems
from glie.server.routes.values import check_question


def add_encode(app: FastAPI, library: Library, limits: Limits) -> None:
    """POST /encode."""

    @app.post("/encode", tags=["search"], responses=problems(400, 501))
    def encode(asked: schemas.EncodeRequest) -> schemas.Encoded:
        """The vectors of a question, by the encoder of the index."""
        check_question(asked.query, limits)
        made_by = library.index.encoder
        if made_by is None:
            raise InputError("the index does not name its encoder")
        vectors = np.asarray(library.question(asked.query), np.float32)
        return schemas.Encoded(encoder=made_by.to_dict(), vectors=vectors.tolist())
