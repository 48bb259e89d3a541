"""A Haystack retriever over an index.

pipeline.add_component("retriever", GlieRetriever("reports.glie", top_k=5))
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from glie.documents.original import original_text
from glie.errors import InputError, MissingExtraError
from glie.index.index import Index
from glie.retriever import AnyEncoder, Retriever, Where, as_setting
from glie.search.results import Hit

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils.filters import document_matches_filter
except ImportError:
    raise MissingExtraError("the Haystack retriever", "haystack") from None


@component
class GlieRetriever:
    """Finds the pages of an index that answer a question, as Haystack documents.

    `index` is the folder of an index, or an open glie.Index. By default the encoder is
    the one that made it; `encoder` is one of glie's, its name, or a function of a list of texts (a
    function cannot be saved with the pipeline). `filters` are Haystack's own, over `meta`; those
    given to `run` replace these.

    A document has the page's id, its text (by OCR if it was indexed so), its metadata and
    its score.
    """

    def __init__(
        self,
        index: Index | str | os.PathLike[str],
        encoder: AnyEncoder | None = None,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        shortlist: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.top_k = top_k
        self.filters = filters
        self.shortlist = shortlist
        self._retriever = Retriever(index, encoder)

    def warm_up(self) -> None:
        """Load the encoder."""
        self._retriever.load()

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best pages for a question."""
        filters = self.filters if filters is None else filters
        hits = self._retriever.search(
            query,
            self.top_k if top_k is None else top_k,
            where=_matching(filters) if filters else None,
            shortlist=self.shortlist,
        )
        return {"documents": [_document(hit) for hit in hits]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best pages for a question, found in a thread."""
        return await asyncio.to_thread(self.run, query, filters, top_k)

    def to_dict(self) -> dict[str, Any]:
        """The settings: the index as its path, the encoder by name."""
        name = as_setting(self.encoder)
        if name is not None and not isinstance(name, str):
            raise InputError(
                "encoder: a function cannot be saved with a pipeline; name an encoder, or leave "
                "it to the index"
            )
        return default_to_dict(
            self,
            index=str(self._retriever.index.path),
            encoder=name,
            top_k=self.top_k,
            filters=self.filters,
            shortlist=self.shortlist,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GlieRetriever:
        """A retriever of saved settings."""
        return default_from_dict(cls, data)


def _matching(filters: dict[str, Any]) -> Where:
    """Haystack's filters as a function, evaluated by Haystack."""
    return lambda page_id, metadata: document_matches_filter(
        filters, Document(id=page_id, meta=metadata)
    )


def _document(hit: Hit) -> Document:
    text = original_text(hit.metadata, ocr=True)
    return Document(id=hit.id, content=text, meta=hit.metadata, score=hit.score)
