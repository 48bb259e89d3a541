"""The route that answers a question: POST /search."""

from __future__ import annotations

import time

import anyio
import numpy as np
from fastapi import FastAPI, HTTPException

import glie
from glie.documents.snippet import best_snippet, matches
from glie.errors import InputError, VectorError
from glie.filters import all_of, from_json
from glie.retriever import filter_from_outside
from glie.search.options import LATE
from glie.search.results import Hit
from glie.server import schemas
from glie.server.library import Library
from glie.server.limits import Limits
from glie.server.metrics import Metrics
from glie.server.problems import problems
from glie.server.routes.values import check_question, integer_or_none, text_and_note, text_or_none


def add_search(app: FastAPI, library: Library, metrics: Metrics, limits: Limits) -> None:
    """POST /search: `limits.searches` at a time; the others wait or are refused."""
    at_once, asking = anyio.CapacityLimiter(limits.searches), 0

    @app.post("/search", tags=["search"], responses=problems(400, 404, 501))
    async def search(asked: schemas.SearchRequest) -> schemas.SearchResponse:
        """Find the pages that answer a question."""
        nonlocal asking  # only the event loop's thread changes it
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
        vectors = question(asked, index) if len(index) else None
        encoded = time.perf_counter()
        where = filter_from_outside(asked.where)
        if asked.documents is not None:
            names = [library.document(name).name for name in asked.documents]
            where = all_of([where, from_json({"document": names})])
        if vectors is None:
            hits = glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0))
        else:
            text = [asked.query] if asked.query and index.has_text else None
            hits = index.search(
                vectors,
                asked.top,
                shortlist=asked.shortlist,
                where=where,
                exact=asked.exact,
                text=text,
                mode=asked.mode,
            )[0]
        metrics.searched(hits.cost)
        metrics.encodings.observe(encoded - began)
        return schemas.SearchResponse(
            query=asked.query,
            hits=[
                shown(index, rank, hit, asked.query or "", hits)
                for rank, hit in enumerate(hits, start=1)
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
        """Refuse a request that no index could answer, or that is too large."""
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

    def question(asked: schemas.SearchRequest, index: glie.Index) -> glie.Queries:
        if asked.query is not None:
            words = asked.query
            if index.has_text and asked.mode != LATE:
                words = index.parse(words).text
                if not words:
                    raise InputError("query: it only excludes words")
            return glie.Queries([library.question(words)])
        try:
            vectors = np.array(asked.vectors, dtype=np.float64)
            return glie.Queries([vectors], normalize=asked.normalize)
        except VectorError as error:
            said = str(error).removeprefix("query '0', ")
            raise VectorError(f"vectors: {said}") from None

    def shown(index: glie.Index, rank: int, hit: Hit, query: str, hits: glie.Hits) -> schemas.Hit:
        text, note = text_and_note(library, index, hit.id, ocr=False)
        snippet = best_snippet(text, query)
        return schemas.Hit(
            rank=rank,
            id=hit.id,
            score=hit.score,
            **{name: part[rank - 1] for name, part in hits.parts.items()},
            document=text_or_none(hit.metadata.get("document")),
            page=integer_or_none(hit.metadata.get("page")),
            snippet=snippet,
            marks=matches(snippet, query) if query else [],
            note=note,
            picture=library.has_picture(index, hit.id),
        )
