"""Errors as answers: one line of JSON with a status, and what the schema says of them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from glie.errors import (
    ClusterError,
    EncoderError,
    GlieError,
    IdError,
    IndexFolderError,
    InputError,
    LockedError,
    MissingExtraError,
)
from glie.server import schemas
from glie.server.library import NotShownError

FAILED = "the server failed; its log says why"

# the status of an error: that of the first class it is an instance of
STATUS: tuple[tuple[type[GlieError], int], ...] = (
    (IdError, 404),
    (NotShownError, 404),
    (LockedError, 409),
    (MissingExtraError, 501),
    (EncoderError, 422),
    (IndexFolderError, 503),
    (ClusterError, 503),
    (InputError, 422),
)


def status_of(error: GlieError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def one_line(error: BaseException) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as JSON, in one line."""
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the schema says of the errors of a route: these, and those of every route."""
    said = {
        400: "the body cannot be read",
        401: "the token is missing or wrong",
        403: "the server is read-only, or the request comes from a page of another site",
        404: "not in the index, or it cannot be shown",
        409: "another process is writing to the index",
        413: "the body is too large",
        421: "a host that the server does not answer to",
        422: "what was sent cannot be used",
        501: "an optional part is not installed",
        503: "too much is being asked at the same time, or the index cannot be read",
    }
    every = {401, 403, 413, 421, 422, 503}
    return {
        status: {"model": schemas.Problem, "description": said[status]}
        for status in sorted({*statuses, *every})
    }


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with `problem`."""

    @app.exception_handler(GlieError)
    def ours(request: Request, error: GlieError) -> JSONResponse:
        return problem(status_of(error), str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return problem(422, f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}")

    @app.exception_handler(StarletteHTTPException)
    def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(Exception)
    def unforeseen(request: Request, error: Exception) -> JSONResponse:
        return problem(500, FAILED)
