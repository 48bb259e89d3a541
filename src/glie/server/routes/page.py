"""The routes of one page: its text, picture, heat map and geometry."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Request, Response

from glie.documents.original import unchanged
from glie.errors import GlieError
from glie.lexical.snippet import best_snippet, matches
from glie.retriever import asked_of
from glie.server import schemas
from glie.server.library import SIZES, Library, NotShownError
from glie.server.limits import Limits
from glie.server.plane import page_map
from glie.server.problems import one_line, problems
from glie.server.routes.values import check_question, integer_or_none, text_and_note, text_or_none

# metadata that is shown elsewhere, or is private
HIDDEN = {"document", "page", "path", "digest", "origin", "missing"}


def add_pages(app: FastAPI, library: Library, limits: Limits) -> None:
    """The routes below /pages. An id may hold slashes, so the longer routes come first."""

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
        size: Annotated[Literal["thumbnail", "large", "full"], Query()] = "large",
    ) -> Response:
        """The page as WebP: drawn from its document or, if that is gone, the kept picture."""
        index = library.index
        metadata = index.metadata(id)
        if not library.has_picture(index, id):
            raise NotShownError(f"page {id!r} has no picture")
        # an id may be reused for another page, but not within the same file
        tag = f'"{metadata.get("digest", index.generation)}-{metadata.get("page")}-{size}"'
        headers = {"etag": tag, "cache-control": "private, max-age=60"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        drawn = library.picture(index, id, SIZES[size])
        return Response(drawn, media_type="image/webp", headers=headers)

    @app.get("/pages/{id:any}/heatmap", tags=["pages"], responses=problems(404, 501))
    def heatmap(
        id: str,
        query: Annotated[str, Query(description="The question.", examples=[schemas.QUESTION])],
        vectors: Annotated[
            Literal["document", "index"],
            Query(description="All vectors of the page, or those that the index reconstructs."),
        ] = "document",
    ) -> schemas.Heatmap:
        """Where on the page each word of a question matches."""
        check_question(query, limits)
        index = library.index
        index.metadata(id)  # raises if it is not in the index
        if index.has_text:  # what was encoded of it: no quotes, nothing that is excluded
            query = index.parse(query).text or query
        try:
            places, words, reason = library.heat(index, id, query, vectors)
        except (GlieError, OSError, IndexError) as error:
            return schemas.Heatmap(
                id=id, query=query, vectors=vectors, kind="none", reason=one_line(error),
                places=[], labels=[], words=[],
            )  # fmt: skip
        return schemas.Heatmap(
            id=id,
            query=query,
            vectors=vectors,
            kind="none" if reason else places.kind,
            reason=None if reason is None else " ".join(reason.split()),
            places=[[round(float(side), 5) for side in place] for place in places.places],
            labels=list(places.labels),
            words=[
                schemas.Word(
                    text=word.text,
                    common=word.common,
                    start=word.start,
                    end=word.end,
                    score=word.score,
                    by_words=word.by_words,
                    warm=[schemas.Warm(**warm._asdict()) for warm in word.warm],
                )
                for word in words
            ],
        )

    @app.get("/pages/{id:any}/words", tags=["pages"], responses=problems(404, 501))
    def words(id: str) -> schemas.PageWords:
        """The words of a page and where they are on its picture: a layer of text to select. OCR
        reads a scan, which takes seconds the first time."""
        index = library.index
        index.metadata(id)  # raises if it is not in the index
        try:
            found = library.words(index, id)
        except (GlieError, OSError, IndexError) as error:
            return schemas.PageWords(id=id, words=[], reason=one_line(error))
        placed = [
            schemas.PlacedWord(
                text=word.text,
                box=(
                    round(float(word.left), 5),
                    round(float(word.top), 5),
                    round(float(word.right), 5),
                    round(float(word.bottom), 5),
                ),
            )
            for word in found
        ]
        return schemas.PageWords(id=id, words=placed, reason=None)

    @app.get("/pages/{id:any}/snippet", tags=["pages"], responses=problems(404, 501))
    def snippet(
        id: str,
        query: Annotated[str, Query(description="The question.", examples=[schemas.QUESTION])],
    ) -> schemas.Snippet:
        """The passage that matches best: by the words of the question or, if the page has none of
        them, by meaning. A scan is read by OCR, and its page encoded again, the first time."""
        check_question(query, limits)
        index = library.index
        index.metadata(id)
        text, note = text_and_note(library, index, id, ocr=True)
        marks = asked_of(index, query)
        found = best_snippet(text, *marks)
        marked = matches(found, *marks)
        by: Literal["words", "meaning", "none"] = "words" if marked else "none"
        if found and not marked:
            with contextlib.suppress(GlieError, OSError, IndexError):
                nearest = library.nearest(index, id, query)
                found, by = (nearest, "meaning") if nearest else (found, by)
        return schemas.Snippet(id=id, snippet=found, marks=marked, by=by, note=note)

    @app.get("/pages/{id:any}/geometry", tags=["pages"], responses=problems(404, 501))
    def geometry(id: str) -> schemas.PageMap:
        """The page's vectors in a plane, with the stored and the reconstructed ones."""
        index = library.index
        codes, reason = index.codes([id]), None
        children = library.stored(index, id)
        vectors, labels = children[:0], list[str]()
        try:
            vectors, places, _ = library.encoded(index, id)
            labels = [places.labels[p] if p >= 0 else "" for p in places.of_vector.tolist()]
        except (GlieError, OSError, IndexError) as error:
            reason = one_line(error)
        made = page_map(id, vectors, labels, codes, children)
        return schemas.PageMap(id=id, reason=reason, **dataclasses.asdict(made))

    @app.get("/pages/{id:any}", tags=["pages"], responses=problems(404, 501))
    def page(id: str) -> schemas.Page:
        """A page: its text, its neighbours in the document, and its metadata."""
        index = library.index
        metadata = index.metadata(id)
        name = text_or_none(metadata.get("document"))
        ids = library.documents()[name].ids if name in library.documents() else [id]
        at = ids.index(id) if id in ids else 0
        text, note = text_and_note(library, index, id, ocr=True)
        return schemas.Page(
            id=id,
            document=name,
            page=integer_or_none(metadata.get("page")),
            pages=len(ids) if name else None,
            previous=ids[at - 1] if at else None,
            next=ids[at + 1] if at + 1 < len(ids) else None,
            origin=text_or_none(metadata.get("origin")),
            picture=library.has_picture(index, id),
            original=unchanged(library.located(metadata)),
            text=text,
            note=note,
            metadata={key: value for key, value in metadata.items() if key not in HIDDEN},
        )
