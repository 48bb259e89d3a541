"""The web application over an index: its API and its page."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

import glie
from glie.documents.snippet import best_snippet, matches
from glie.errors import (
    EncoderError,
    GlieError,
    IdError,
    IndexFolderError,
    InputError,
    LockedError,
    MissingExtraError,
    VectorError,
)
from glie.pages import is_unicode
from glie.progress import ignore
from glie.server.guard import COOKIE, Guard, same, session_of
from glie.server.library import LARGE, THUMBNAIL, Library, NotShownError
from glie.server.limits import Limits
from glie.server.plane import page_map
from glie.server.survey import Surveyor
from glie.server.uploads import Sent, Uploads

try:
    import anyio
    from fastapi import FastAPI, File, HTTPException, Query, Request, Response, UploadFile
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, StreamingResponse
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.exceptions import HTTPException as StarletteHTTPException

    from glie.server import schemas
    from glie.server.metrics import Metrics
except ImportError:
    raise MissingExtraError("the web application", "serve") from None

if TYPE_CHECKING:
    from glie.encoders import Encoder
    from glie.ingest import IngestProgress
    from glie.server.survey import Survey

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_UPLOADS = 8  # at a time, all but one of which wait
HIDDEN = {"document", "page", "path", "digest", "origin", "missing"}  # shown otherwise, or private
STATIC = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
NDJSON = "application/x-ndjson"

# the first that an error is one of
STATUS: tuple[tuple[type[GlieError], int], ...] = (
    (IdError, 404),
    (NotShownError, 404),
    (LockedError, 409),
    (MissingExtraError, 501),
    (EncoderError, 422),
    (IndexFolderError, 503),
    (InputError, 422),
)

log = logging.getLogger("glie.serve")


class AnyConvertor(PathConvertor):
    """An id in an address: it may hold slashes and, unlike in a path, newlines."""

    regex = "(?s:.*)"


register_url_convertor("any", AnyConvertor())


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as JSON, in one line."""
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the schema says of the errors of a route; some every one can have."""
    said = {
        400: "the body cannot be read",
        401: "the token is missing or wrong",
        403: "the server is read-only, or the request comes from a page of another site",
        404: "not in the index, or not to be shown",
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


def create_app(
    index_path: str | os.PathLike[str],
    *,
    encoder: Encoder | None = None,
    read_only: bool = False,
    token: str | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> FastAPI:
    """The application for an index. It answers to requests for `hosts` (None: any, which is safe
    only with a token). `encoder` is loaded by the name that the index has unless it is given."""
    library = Library(Path(index_path), encoder)
    uploads = Uploads(library, limits.upload_pages)
    surveyor = Surveyor(library)
    metrics = Metrics(library)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=library.warm_up, name="warm-up", daemon=True).start()
        yield

    app = FastAPI(
        title="glie",
        version=glie.__version__,
        description="Search an index, see why a page matched, add and delete documents.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.library = library
    app.add_middleware(
        Guard,
        token=token,
        hosts=hosts,
        refuse=problem,
        body_limit=lambda method, path: (
            limits.upload_bytes
            if (method, path, read_only) == ("POST", "/documents", False)
            else limits.body_bytes
        ),
        seen=metrics.answered,
    )
    _add_error_handlers(app)
    _add_page(app, token)
    _add_search(app, library, metrics, limits)
    _add_pages(app, library, limits)
    _add_documents(app, library, uploads, metrics, read_only)
    _add_measurements(app, library, surveyor)

    @app.get("/info", tags=["index"], responses=problems())
    def info() -> schemas.Info:
        """What the index holds and what it weighs."""
        index = library.index
        measured = index.info()
        facts, lean, pages = measured.to_dict(), measured.lean_bytes, measured.pages
        known = {name: value for name, value in facts.items() if name in schemas.Info.model_fields}
        return schemas.Info(
            **known
            | {
                "name": library.path.name,
                "version": glie.__version__,
                "documents": len(library.documents()),
                "encoder": Path(facts["encoder"]).name if facts["encoder"] else None,
                "encoder_state": library.encoder_state,
                "bytes": lean,
                "bytes_per_page": lean / pages if pages else None,
                "compression": facts["uncompressed_bytes"] / lean if pages else None,
                "read_only": read_only,
                "limits": dataclasses.asdict(limits),
            }
        )

    @app.get("/health", tags=["index"], responses=problems())
    def health() -> schemas.Health:
        """Whether the server answers. Needs no token."""
        state = library.encoder_state
        known = state in ("none", "loading", "ready")
        return schemas.Health(status="ok", encoder=state if known else "failed")  # type: ignore[arg-type]

    @app.get(
        "/metrics",
        tags=["index"],
        response_class=Response,
        responses={**problems(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def prometheus() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(GlieError)
    def ours(request: Request, error: GlieError) -> JSONResponse:
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
        return problem(status, str(error))

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
        return problem(500, "the server failed; its log says why")


def _add_page(app: FastAPI, token: str | None) -> None:
    folder = resources.files("glie.server") / "static"
    page = (folder / "index.html").read_bytes()
    files = {name: (folder / name).read_bytes() for name in STATIC}
    unchanged = {"cache-control": "no-cache"}

    @app.get("/", include_in_schema=False)
    def home() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=unchanged)

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, f"no file {name!r}")
        return Response(files[name], media_type=STATIC[name], headers=unchanged)

    @app.post("/session", tags=["index"], status_code=204, responses=problems(400))
    async def session(request: Request, given: schemas.Token) -> Response:
        """Let a browser in that knows the token: it gets a cookie."""
        if token is None:
            return Response(status_code=204)
        if not same(given.token, token):
            await anyio.sleep(0.5)  # guessing takes longer
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


def _add_search(app: FastAPI, library: Library, metrics: Metrics, limits: Limits) -> None:
    at_once, asking = anyio.CapacityLimiter(limits.searches), 0

    @app.post("/search", tags=["search"], responses=problems(400, 404, 501))
    async def search(asked: schemas.SearchRequest) -> schemas.SearchResponse:
        """Find the pages that answer a question."""
        nonlocal asking  # which only the event loop's own thread changes
        if asking >= limits.searches + limits.waiting:
            raise HTTPException(503, "too many searches are waiting", {"retry-after": "1"})
        asking += 1
        try:
            return await anyio.to_thread.run_sync(answer, asked, limiter=at_once)
        finally:
            asking -= 1

    def answer(asked: schemas.SearchRequest) -> schemas.SearchResponse:
        index = library.index
        if asked.top > limits.top:
            raise InputError(f"top: found {asked.top}, expected at most {limits.top}")
        began = time.perf_counter()
        check(asked, index)
        vectors = question(asked) if len(index) else None
        encoded = time.perf_counter()
        where = None
        if asked.documents is not None:
            where = {"document": [library.document(name).name for name in asked.documents]}
        if vectors is None:
            hits = glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0))
        else:
            hits = index.search(
                vectors, asked.top, shortlist=asked.shortlist, where=where, exact=asked.exact
            )[0]
        metrics.searched(hits.cost)
        metrics.encodings.observe(encoded - began)
        return schemas.SearchResponse(
            query=asked.query,
            hits=[
                hit(index, rank, *found, asked.query or "")
                for rank, found in enumerate(
                    zip(hits.ids, hits.scores, hits.metadata, strict=True), start=1
                )
            ],
            cost=schemas.Cost(
                pages_scanned=hits.cost.pages_scanned,
                pages_estimated=hits.cost.pages_estimated,
                pages_regenerated=hits.cost.pages_regenerated,
                bytes_read=hits.cost.bytes_read,
                milliseconds=hits.cost.seconds * 1000,
                encode_milliseconds=(encoded - began) * 1000,
            ),
        )

    def check(asked: schemas.SearchRequest, index: glie.Index) -> None:
        """What holds of a question whatever the index has."""
        if (asked.query is None) == (asked.vectors is None):
            raise InputError("expected either query, a question in words, or vectors")
        if asked.query is not None:
            check_question(asked.query, limits)
        if asked.vectors is None:
            return
        lengths = {len(row) for row in asked.vectors}
        if len(lengths) != 1:
            raise InputError("vectors: expected at least one row, and rows of one length")
        if len(asked.vectors) > limits.query_vectors:
            found, most = len(asked.vectors), limits.query_vectors
            raise InputError(f"vectors: found {found:,}, expected at most {most:,}")
        if index.dim is not None and lengths != {index.dim}:
            found = lengths.pop()
            raise InputError(f"vectors: rows of {found} numbers, expected {index.dim}")

    def question(asked: schemas.SearchRequest) -> glie.Queries:
        if asked.query is not None:
            return glie.Queries([library.question(asked.query)])
        try:
            vectors = np.array(asked.vectors, dtype=np.float64)
            return glie.Queries([vectors], normalize=asked.normalize)
        except VectorError as error:
            said = str(error).removeprefix("query '0', ")
            raise VectorError(f"vectors: {said}") from None

    def hit(
        index: glie.Index, rank: int, page_id: str, score: float, metadata: Any, query: str
    ) -> schemas.Hit:
        text, note = text_and_note(library, index, page_id, ocr=False)
        snippet = best_snippet(text, query)
        return schemas.Hit(
            rank=rank,
            id=page_id,
            score=score,
            document=_text(metadata.get("document")),
            page=_whole(metadata.get("page")),
            snippet=snippet,
            marks=matches(snippet, query) if query else [],
            note=note,
            picture=library.has_picture(index, page_id),
        )


def check_question(question: str, limits: Limits) -> None:
    if not question.strip():
        raise InputError("query: the question is empty")
    if not is_unicode(question):
        raise InputError("query: not valid Unicode (a lone surrogate)")
    if len(question) > limits.query_characters:
        found, most = len(question), limits.query_characters
        raise InputError(f"query: {found:,} characters, expected at most {most:,}")


def text_and_note(
    library: Library, index: glie.Index, page_id: str, *, ocr: bool
) -> tuple[str, str | None]:
    """What a page says, or why that is not known."""
    try:
        text = library.text(index, page_id, ocr=ocr)
    except NotShownError as error:
        return "", str(error)
    except (GlieError, OSError, IndexError, ValueError):
        text = ""
    return text, None if text.strip() else library.why_no_text(index, page_id)


def _add_pages(app: FastAPI, library: Library, limits: Limits) -> None:
    # an id may hold slashes, so the longer routes come first

    @app.get(
        "/pages/{id:any}/image",
        tags=["pages"],
        response_class=Response,
        responses={
            **problems(404, 501),
            200: {"content": {"image/webp": {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "as it was"},
        },
    )
    def image(
        request: Request,
        id: str,
        size: Annotated[Literal["thumbnail", "large"], Query()] = "large",
    ) -> Response:
        """The page as a picture, WebP: from its document or, if that is gone, as it was kept."""
        index = library.index
        metadata = index.metadata(id)
        if not library.has_picture(index, id):
            raise NotShownError(f"page {id!r} has no picture")
        # an id may come to mean another page, but not of the same file
        tag = f'"{metadata.get("digest", index.generation)}-{metadata.get("page")}-{size}"'
        headers = {"etag": tag, "cache-control": "private, max-age=60"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        drawn = library.picture(index, id, THUMBNAIL if size == "thumbnail" else LARGE)
        return Response(drawn, media_type="image/webp", headers=headers)

    @app.get("/pages/{id:any}/heatmap", tags=["pages"], responses=problems(404, 501))
    def heatmap(
        id: str,
        query: Annotated[str, Query(description="The question.", examples=[schemas.QUESTION])],
        vectors: Annotated[
            Literal["document", "index"],
            Query(description="All vectors of the page, or what the index reads back of them."),
        ] = "document",
    ) -> schemas.Heatmap:
        """Where on the page each word of a question finds its evidence."""
        check_question(query, limits)
        index = library.index
        index.metadata(id)  # or it is not there
        try:
            places, words = library.heat(index, id, query, vectors)
        except (GlieError, OSError, IndexError) as error:
            return schemas.Heatmap(
                id=id, query=query, vectors=vectors, kind="none", reason=_line(error),
                places=[], labels=[], words=[],
            )  # fmt: skip
        return schemas.Heatmap(
            id=id,
            query=query,
            vectors=vectors,
            kind=places.kind,
            reason=None,
            places=[[round(float(side), 5) for side in place] for place in places.places],
            labels=list(places.labels),
            words=[
                schemas.Word(
                    text=word.text,
                    common=word.common,
                    start=word.start,
                    end=word.end,
                    score=word.score,
                    warm=[schemas.Warm(**warm._asdict()) for warm in word.warm],
                )
                for word in words
            ],
        )

    @app.get("/pages/{id:any}/geometry", tags=["pages"], responses=problems(404, 501))
    def geometry(id: str) -> schemas.PageMap:
        """The page's vectors in a plane, with what is stored of them and what is read back."""
        index = library.index
        codes, reason = index.codes([id]), None
        children = library.stored(index, id)
        vectors, labels = children[:0], list[str]()
        try:
            vectors, places = library.encoded(index, id)
            labels = [places.labels[p] if p >= 0 else "" for p in places.of_vector.tolist()]
        except (GlieError, OSError, IndexError) as error:
            reason = _line(error)
        made = page_map(id, vectors, labels, codes, children)
        return schemas.PageMap(id=id, reason=reason, **dataclasses.asdict(made))

    @app.get("/pages/{id:any}", tags=["pages"], responses=problems(404, 501))
    def page(id: str) -> schemas.Page:
        """A page: its text, its place in the document, and what is stored of it."""
        index = library.index
        metadata = index.metadata(id)
        name = _text(metadata.get("document"))
        ids = library.documents()[name].ids if name in library.documents() else [id]
        at = ids.index(id) if id in ids else 0
        text, note = text_and_note(library, index, id, ocr=True)
        return schemas.Page(
            id=id,
            document=name,
            page=_whole(metadata.get("page")),
            pages=len(ids) if name else None,
            previous=ids[at - 1] if at else None,
            next=ids[at + 1] if at + 1 < len(ids) else None,
            origin=_text(metadata.get("origin")),
            picture=library.has_picture(index, id),
            text=text,
            note=note,
            metadata={key: value for key, value in metadata.items() if key not in HIDDEN},
        )


def _add_documents(
    app: FastAPI, library: Library, uploads: Uploads, metrics: Metrics, read_only: bool
) -> None:
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
                "the body a line of JSON a step: {event: progress, …}, and at last "
                "{event: done, …} or {event: error, error, status}.",
            },
            200: {"content": {NDJSON: {"schema": {"type": "string"}}}},
        },
    )
    def upload(
        request: Request,
        files: Annotated[list[UploadFile], File(description="PDF, image, text or Markdown.")],
    ) -> Response:
        """Add documents: they are kept in the index's folder and indexed. What is acknowledged is
        on disk."""
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
            return StreamingResponse(_told(work), media_type=NDJSON)
        return JSONResponse(work(), 201)

    @app.get("/documents/{id:any}", tags=["documents"], responses=problems(404))
    def document(id: str) -> schemas.DocumentPages:
        """A document and the ids of its pages, in order."""
        found = library.document(id)
        return schemas.DocumentPages(name=id, uploaded=found.uploaded, pages=found.ids)

    @app.delete("/documents/{id:any}", tags=["documents"], responses=problems(404, 409))
    def delete(id: str) -> schemas.Deleted:
        """Delete a document from the index. Its file is deleted if it was uploaded, and left where
        it is otherwise."""
        check_writable()
        deleted = uploads.delete(id)
        metrics.deleted.inc(deleted)
        return schemas.Deleted(deleted=deleted, pages=len(library.index))


def _told(work: Callable[[Callable[[IngestProgress], None]], dict[str, Any]]) -> Iterator[str]:
    """A line of JSON for each step of the work, and for what became of it. The work begins at once,
    and goes on when nobody listens any more."""
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
            status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
            events.put({"event": "error", "error": _line(error), "status": status})
        except Exception:
            log.exception("an upload failed")
            said = "the server failed; its log says why"
            events.put({"event": "error", "error": said, "status": 500})

    def lines() -> Iterator[str]:
        event = {"event": "progress"}
        while event["event"] == "progress":
            event = events.get()
            yield json.dumps(event) + "\n"

    threading.Thread(target=run, name="upload", daemon=True).start()
    return lines()


def _add_measurements(app: FastAPI, library: Library, surveyor: Surveyor) -> None:
    def shown(survey: Survey) -> schemas.Survey:
        shape = None
        if survey.geometry is not None:
            facts = survey.geometry.to_dict()
            each = [
                {key: page[key] for key in schemas.PageShape.model_fields} for page in facts["each"]
            ]
            known = {key: facts[key] for key in schemas.Shape.model_fields}
            shape = schemas.Shape(**known | {"each": each})
        return schemas.Survey(
            state=survey.state,
            doing=survey.doing,
            share=survey.share,
            stale=survey.state == "done" and survey.generation != library.index.generation,
            sampled=survey.sampled,
            budgets=[schemas.Budget(**row.to_dict()) for row in survey.budgets],
            current=schemas.Budget(**survey.current.to_dict()) if survey.current else None,
            geometry=shape,
        )

    @app.get("/survey", tags=["measurements"], responses=problems())
    def survey() -> schemas.Survey:
        """What was measured of this corpus: what budgets would keep, and its geometry."""
        return shown(surveyor.survey)

    @app.post("/survey", tags=["measurements"], status_code=202, responses=problems())
    def measure() -> schemas.Survey:
        """Begin to measure, unless that is being done or is done; GET tells how far it is."""
        return shown(surveyor.start())


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
