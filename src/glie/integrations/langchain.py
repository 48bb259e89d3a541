"""A LangChain retriever over an index.

retriever = GlieRetriever(index="reports.glie", top=5)
documents = retriever.invoke("capital expenditure in 2018")
"""

from __future__ import annotations

from typing import Any

from glie.documents.original import original_text
from glie.errors import MissingExtraError
from glie.retriever import Retriever, Where, as_setting
from glie.search.results import Hit

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import PrivateAttr
except ImportError:
    raise MissingExtraError("the LangChain retriever", "langchain") from None


class GlieRetriever(BaseRetriever):
    """Finds the pages of an index that answer a question, as LangChain documents.

    `index` is the folder of an index, or an open glie.Index. By default the encoder is
    the one that made it; `encoder` is one of glie's, its name, or a function of a list of texts.
    `where` filters pages by metadata ({"document": "a.pdf"}; a list means any of its values), or by
    a function of id and metadata. `top` and `where` can also be given
    for one question: `retriever.invoke(question, top=3)`.

    A document has the page's id, its text (by OCR if it was indexed so), and its metadata
    with the `score`. A retriever of a folder, with a named encoder, can be saved (`dumps`).
    """

    index: Any
    encoder: Any = None
    top: int = 10
    where: Any = None
    shortlist: int | None = None

    _retriever: Retriever = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._retriever = Retriever(self.index, self.encoder)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        top: int | None = None,
        where: Where | None = None,
    ) -> list[Document]:
        hits = self._retriever.search(
            query,
            self.top if top is None else top,
            where=self.where if where is None else where,
            shortlist=self.shortlist,
        )
        return [_document(hit) for hit in hits]

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """The settings that are saved differently: the index as its path, the encoder by name."""
        return {"index": str(self._retriever.index.path), "encoder": as_setting(self.encoder)}


def _document(hit: Hit) -> Document:
    text, metadata = original_text(hit.metadata, ocr=True), {**hit.metadata, "score": hit.score}
    return Document(id=hit.id, page_content=text, metadata=metadata)
