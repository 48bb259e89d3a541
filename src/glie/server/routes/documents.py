"""The routes of documents: list, upload and delete."""

from __future__ import annotations

import dataclasses
import json
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, File, HTTPException, Request, Response, UploadFile
from fastapi.responses import JSONResponse, StreamingResponse

from glie.errors import GlieError
from glie.progress import ignore
from glie.server import schemas
from glie.server.library import Library
from glie.server.metrics import Metrics
from glie.server.problems import FAILED, one_line, problems, status_of
from glie.server.uploads import Sent, Uploads

if TYPE_CHECKING:
    from glie.ingest import IngestProgress

MOST_UPLOADS = 8  # under way at a time; all but one of them wait
NDJSON = "application/x-ndjson"

log = logging.getLogger("glie.serve")


def add_documents(
    app: FastAPI, library: Library, uploads: Uploads, metrics: Metrics, read_only: bool
) -> None:
    """The routes below /documents."""
    at_once = threading.BoundedSemaphore(MOST_UPLOADS)

    def check_writable() -> None:
        if read_only:
            raise HTTPException(403, "the server is read-only")

    @app.get("/documents", tags=["documents"], responses=problems())
    def documents() -> schemas.Documents:
        """The documents of the index."""
        return schemas.Documents(
            documents=[
                schemas.Document(
                    name=name,
                    pages=len(document.ids),
                    first=document.ids[0],
                    uploaded=document.uploaded,
                )
                for name, document in library.documents().items()
            ]
        )

    @app.post(
        "/documents",
        tags=["documents"],
        status_code=201,
        response_model=schemas.Added,
        responses={
            **problems(400, 409, 501),
            201: {
                "description": "Added. With `Accept: application/x-ndjson`, the status is 200, and "
                "the body has a line of JSON for each step: {event: progress, …}, and last "
                "{event: done, …} or {event: error, error, status}.",
            },
            200: {"content": {NDJSON: {"schema": {"type": "string"}}}},
        },
    )
    def upload(
        request: Request,
        files: Annotated[
            list[UploadFile],
            File(description="PDF, image, text, Markdown, Office, HTML, EPUB or e-mail."),
        ],
    ) -> Response:
        """Add documents: they are stored in the index's folder and indexed. When the server
        answers, they are on disk."""
        check_writable()
        if not at_once.acquire(blocking=False):
            raise HTTPException(503, "too many uploads are waiting", {"retry-after": "10"})
        sent = [Sent(file.filename or "", file.file) for file in files]

        def work(progress: Callable[[IngestProgress], None] = ignore) -> dict[str, Any]:
            try:
                added = uploads.add(sent, progress)
            finally:
                at_once.release()
            metrics.added.inc(added.pages)
            return dataclasses.asdict(added)

        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_streamed(work), media_type=NDJSON)
        return JSONResponse(work(), 201)

    @app.get("/documents/{id:any}", tags=["documents"], responses=problems(404))
    def document(id: str) -> schemas.DocumentPages:
        """A document and the ids of its pages, in order."""
        found = library.document(id)
        return schemas.DocumentPages(name=id, uploaded=found.uploaded, pages=found.ids)

    @app.delete("/documents/{id:any}", tags=["documents"], responses=problems(404, 409))
    def delete(id: str) -> schemas.Deleted:
        """Delete a document from the index. Its file is deleted only if it was uploaded."""
        check_writable()
        deleted = uploads.delete(id)
        metrics.deleted.inc(deleted)
        return schemas.Deleted(deleted=deleted, pages=len(library.index))


def _streamed(work: Callable[[Callable[[IngestProgress], None]], dict[str, Any]]) -> Iterator[str]:
    """A line of JSON for each step of the work, and one for its result. The work starts at once
    and continues if the client disconnects."""
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def progress(step: IngestProgress) -> None:
        events.put(
            {"event": "progress", "document": step.document, "done": step.done}
            | {"pages": step.total}
        )

    def run() -> None:
        try:
            events.put({"event": "done", **work(progress)})
        except GlieError as error:
            said = {"error": one_line(error), "status": status_of(error)}
            events.put({"event": "error", **said})
        except Exception:
            log.exception("an upload failed")
            events.put({"event": "error", "error": FAILED, "status": 500})

    def lines() -> Iterator[str]:
        event = {"event": "progress"}
        while event["event"] == "progress":
            event = events.get()
            yield json.dumps(event) + "\n"

    threading.Thread(target=run, name="upload", daemon=True).start()
    return lines()
