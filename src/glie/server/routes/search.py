"""The route that answers a question: POST /search."""

from __future__ import annotations

from typing import Any

import anyio
import numpy as np
from fastapi import FastAPI, HTTPException

import glie
from glie.errors import InputError, VectorError
from glie.filters import Filter, all_of, from_json
from glie.lexical.snippet import Asked, best_snippet, matches
from glie.retriever import answer, asked_of, filter_from_outside
from glie.search.options import HYBRID, LATE, LEXICAL
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
            return await anyio.to_thread.run_sync(respond, asked, limiter=at_once)
        finally:
            asking -= 1

    def respond(asked: schemas.SearchRequest) -> schemas.SearchResponse:
        index = library.index
        if asked.top > limits.top:
            raise InputError(f"top: found {asked.top}, expected at most {limits.top}")
        check(asked, index)
        where = filter_from_outside(asked.where)
        if asked.documents is not None:
            names = [library.document(name).name for name in asked.documents]
            where = all_of([where, from_json({"document": names})])
        hits = found(asked, index, where)
        metrics.searched(hits.cost)
        marks = asked_of(index, asked.query or "")
        metrics.encodings.observe(hits.cost.encode_seconds)
        return schemas.SearchResponse(
            query=asked.query,
            hits=[shown(index, rank, hit, marks, hits) for rank, hit in enumerate(hits, start=1)],
            mode=searched(asked, index),
            reranked=reranked(asked, index),
            weak=hits.weak,
            language=hits.language,
            cost=schemas.Cost(
                pages_scanned=hits.cost.pages_scanned,
                pages_estimated=hits.cost.pages_estimated,
                pages_regenerated=hits.cost.pages_regenerated,
                bytes_read=hits.cost.bytes_read,
                milliseconds=hits.cost.seconds * 1000,
                encode_milliseconds=hits.cost.encode_seconds * 1000,
                missing=list(hits.cost.missing),
            ),
        )

    def check(asked: schemas.SearchRequest, index: glie.Index) -> None:
        """Refuse a request that no index could answer, or that is too large."""
        if [asked.query, asked.vectors, asked.like].count(None) != 2:
            raise InputError(
                "expected either query, a question in words, or vectors, or like, a page"
            )
        if asked.query is not None:
            check_question(asked.query, limits)
        if asked.mode not in (None, LATE):
            if asked.query is None:
                raise InputError(f"mode: {asked.mode} searches words; give the question as query")
            if not index.has_text:
                raise InputError(f"mode: {asked.mode} searches words, and no page has text")
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

    def found(asked: schemas.SearchRequest, index: glie.Index, where: Filter) -> glie.Hits:
        options: dict[str, Any] = {
            "shortlist": asked.shortlist,
            "where": where,
            "exact": asked.exact,
        }
        if asked.query is not None:
            return answer(
                index,
                asked.query,
                asked.top,
                library.question,
                lambda page_id, _: text_and_note(library, index, page_id, ocr=False)[0],
                mode=asked.mode,
                **options,
            )
        if asked.like is not None:
            return index.like(asked.like, asked.top, **options)
        if not len(index):
            return glie.Hits([], [], [], glie.Cost(0, 0, 0, 0.0))
        return index.search(vectors_of(asked), asked.top, **options)[0]

    def searched(asked: schemas.SearchRequest, index: glie.Index) -> Any:
        """The mode of the search that was made."""
        if asked.query is None or not index.has_text:
            return LATE
        return asked.mode or HYBRID

    def reranked(asked: schemas.SearchRequest, index: glie.Index) -> bool:
        """Whether the best pages were scored by their reconstructed vectors."""
        given = asked.shortlist
        shortlist = index.codec.shortlist_for(len(index)) if given is None else given
        return index.codec.regenerates and shortlist > 0 and asked.mode != LEXICAL

    def vectors_of(asked: schemas.SearchRequest) -> glie.Queries:
        try:
            vectors = np.array(asked.vectors, dtype=np.float64)
            return glie.Queries([vectors], normalize=asked.normalize)
        except VectorError as error:
            said = str(error).removeprefix("query '0', ")
            raise VectorError(f"vectors: {said}") from None

    def shown(index: glie.Index, rank: int, hit: Hit, marks: Asked, hits: glie.Hits) -> schemas.Hit:
        text, note = text_and_note(library, index, hit.id, ocr=False)
        snippet = best_snippet(text, *marks)
        return schemas.Hit(
            rank=rank,
            id=hit.id,
            score=hit.score,
            **{name: part[rank - 1] for name, part in hits.parts.items()},
            strength=None if hits.strength is None else hits.strength[rank - 1],
            document=text_or_none(hit.metadata.get("document")),
            page=integer_or_none(hit.metadata.get("page")),
            snippet=snippet,
            marks=matches(snippet, *marks),
            note=note,
            picture=library.has_picture(index, hit.id),
        )
