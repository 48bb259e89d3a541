"""The page and its files, and the session that lets a browser in."""

from __future__ import annotations

from importlib import resources

import anyio
from fastapi import FastAPI, HTTPException, Request, Response

from glie.server import schemas
from glie.server.guard import COOKIE, same, session_of
from glie.server.problems import problems

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def add_static(app: FastAPI, token: str | None) -> None:
    """The page, its files, and POST /session."""
    folder = resources.files("glie.server") / "static"
    page = (folder / "index.html").read_bytes()
    files = {
        file.name: (TYPES[suffix], file.read_bytes())
        for file in folder.iterdir()
        for suffix in TYPES
        if file.name.endswith(suffix)
    }
    unchanged = {"cache-control": "no-cache"}

    @app.get("/", include_in_schema=False)
    def home() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=unchanged)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, f"no file {name!r}")
        kind, data = files[name]
        return Response(data, media_type=kind, headers=unchanged)

    @app.post("/session", tags=["index"], status_code=204, responses=problems(400))
    async def session(request: Request, given: schemas.Token) -> Response:
        """Exchange the token for a session cookie."""
        if token is None:
            return Response(status_code=204)
        if not same(given.token, token):
            await anyio.sleep(0.5)  # slows down guessing
            raise HTTPException(401, "the token is wrong")
        answer = Response(status_code=204)
        answer.set_cookie(
            COOKIE,
            session_of(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer
