"""The route of the file behind a page: shown where a browser shows it safely, else downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from glie.documents.find import KINDS
from glie.documents.original import open_original
from glie.server.guard import CONTENT_POLICY
from glie.server.library import Library, NotShownError, why_not_shown
from glie.server.problems import problems

CHUNK = 1 << 18
OFFICE = "application/vnd.openxmlformats-officedocument"
TYPES = {
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".markdown": "text/plain; charset=utf-8",
    ".docx": f"{OFFICE}.wordprocessingml.document",
    ".pptx": f"{OFFICE}.presentationml.presentation",
    ".xlsx": f"{OFFICE}.spreadsheetml.sheet",
    ".html": "text/html",
    ".htm": "text/html",
    ".epub": "application/epub+zip",
    ".eml": "message/rfc822",
}
# What browsers show without running anything of it. All else is downloaded: a script in an HTML
# file would run with the rights of this server's own page.
SHOWN = {".pdf", ".png", ".jpg", ".jpeg", ".webp", ".txt", ".md", ".markdown"}
# Chromium shows no PDF in a sandbox, and its viewer of PDFs has styles of its own.
PDF_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; object-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def add_original(app: FastAPI, library: Library) -> None:
    """GET /pages/{id}/original."""

    @app.get(
        "/pages/{id:any}/original",
        tags=["pages"],
        response_class=Response,
        responses={
            **problems(404),
            200: {
                "content": {
                    kind: {"schema": {"type": "string", "format": "binary"}}
                    for kind in ("application/pdf", "application/octet-stream")
                }
            },
        },
    )
    def original(id: str) -> Response:
        """The file that the page is of, byte for byte as it was indexed. Open a PDF at a page with
        `#page=3`. HTML, e-mail and Office files are sent as downloads."""
        metadata = library.located(library.index.metadata(id))
        found = open_original(metadata)
        if found is None:
            raise NotShownError(why_not_shown(metadata))
        suffix = "." + found.name.rpartition(".")[2].lower()
        how = "inline" if suffix in SHOWN else "attachment"
        name = quote(found.name, safe="", errors="replace")
        return StreamingResponse(
            _chunks(found.file),
            headers={
                "content-type": TYPES[suffix],  # as media_type, HTML would be called UTF-8
                "content-length": str(found.size),
                "content-disposition": f"{how}; filename*=UTF-8''{name}",
                "content-security-policy": PDF_POLICY if suffix == ".pdf" else CONTENT_POLICY,
            },
        )

    assert TYPES.keys() == KINDS.keys()


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
