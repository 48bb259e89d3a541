"""A LlamaIndex retriever over an index.

retriever = GlieRetriever("reports.glie", top=5)
nodes = retriever.retrieve("capital expenditure in 2018")
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from glie.documents.original import original_text
from glie.errors import InputError, MissingExtraError
from glie.index.index import Index
from glie.retriever import AnyEncoder, Retriever, Where
from glie.search.results import Hit

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from llama_index.core.vector_stores import MetadataFilters
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn
except ImportError:
    raise MissingExtraError("the LlamaIndex retriever", "llama-index") from None

# glie's own metadata, hidden from models
BOOKKEEPING = ["path", "digest", "origin", "missing"]


class GlieRetriever(BaseRetriever):
    """Finds the pages of an index that answer a question, as nodes with scores.

    `index` is the folder of an index, or an open glie.Index. By default the encoder is
    the one that made it; `encoder` is one of glie's, its name, or a function of a list of texts.
    `where` filters pages by metadata ({"document": "a.pdf"}; a list means any of its values), or by
    a function of id and metadata; `filters` are LlamaIndex's own filters.

    A node has the page's id, its text (by OCR if it was indexed so), its metadata, and its
    document as the source.
    """

    def __init__(
        self,
        index: Index | str | os.PathLike[str],
        encoder: AnyEncoder | None = None,
        *,
        top: int = 10,
        where: Where | None = None,
        filters: MetadataFilters | None = None,
        shortlist: int | None = None,
        **base: Any,
    ) -> None:
        if where is not None and filters is not None:
            raise InputError("where, filters: give one of them")
        self._retriever = Retriever(index, encoder)
        self._top, self._shortlist = top, shortlist
        self._where = where if filters is None else self._matching(filters)
        super().__init__(**base)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        hits = self._retriever.search(
            question, self._top, where=self._where, shortlist=self._shortlist
        )
        return [NodeWithScore(node=_node(hit), score=hit.score) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _matching(self, filters: MetadataFilters) -> Where:
        """LlamaIndex's filters as a function, evaluated by LlamaIndex."""
        matches = build_metadata_filter_fn(
            lambda name: self._retriever.index.metadata(name), filters
        )
        return lambda page_id, _: matches(page_id)


def _node(hit: Hit) -> TextNode:
    document = hit.metadata.get("document")
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    return TextNode(
        id_=hit.id,
        text=original_text(hit.metadata, ocr=True),
        metadata=hit.metadata,
        relationships=source,
        excluded_llm_metadata_keys=BOOKKEEPING,
        excluded_embed_metadata_keys=BOOKKEEPING,
    )
