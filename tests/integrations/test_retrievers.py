"""Retrievers for LangChain, LlamaIndex and Haystack: in each of them the same pages, with their
text and metadata, that glie finds."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import ParrotFakeChatModel
from langchain_core.load import dumps, loads
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

import glie
from glie.encoders import Encoder
from glie.integrations import haystack, langchain, llama_index
from tests.integrations.conftest import CAPITAL, HOLIDAY, Library

QUESTION = "How many days of vacation are there?"


class Found(NamedTuple):
    id: str
    text: str
    metadata: dict[str, Any]
    score: float


Retrieve = Callable[..., list[Found]]


def by_langchain(
    index: Any, question: str = QUESTION, *, asynchronous: bool = False, **how: Any
) -> list[Found]:
    retriever = langchain.GlieRetriever(index=index, **how)
    documents = (
        asyncio.run(retriever.ainvoke(question)) if asynchronous else retriever.invoke(question)
    )
    found = []
    for document in documents:
        metadata = dict(document.metadata)
        score = metadata.pop("score")
        assert document.id is not None
        found.append(Found(document.id, document.page_content, metadata, score))
    return found


def by_llama_index(
    index: Any, question: str = QUESTION, *, asynchronous: bool = False, **how: Any
) -> list[Found]:
    retriever = llama_index.GlieRetriever(index, **how)
    nodes = (
        asyncio.run(retriever.aretrieve(question)) if asynchronous else retriever.retrieve(question)
    )
    return [Found(n.node_id, n.text, n.metadata, n.score or 0.0) for n in nodes]


def by_haystack(
    index: Any, question: str = QUESTION, *, asynchronous: bool = False, top: int = 10, **how: Any
) -> list[Found]:
    retriever = haystack.GlieRetriever(index, top_k=top, **how)
    result = asyncio.run(retriever.run_async(question)) if asynchronous else retriever.run(question)
    return [Found(d.id, d.content, d.meta, d.score) for d in result["documents"]]


HOSTS: dict[str, Retrieve] = {
    "langchain": by_langchain,
    "llama_index": by_llama_index,
    "haystack": by_haystack,
}


@pytest.fixture(params=HOSTS)
def retrieve(request: pytest.FixtureRequest) -> Retrieve:
    return HOSTS[request.param]


def test_pages_are_those_of_glie(retrieve: Retrieve, made: Library, encoder: Encoder) -> None:
    index = glie.Index.open(made.path)
    hits = index.search(encoder.encode_queries([QUESTION]), top=3, text=[QUESTION])[0]
    assert hits.words is not None  # words and meaning
    found = retrieve(made.path, encoder=encoder, top=3)
    assert [page.id for page in found] == hits.ids
    assert [page.score for page in found] == pytest.approx(hits.scores, abs=1e-6)
    assert [page.metadata for page in found] == hits.metadata
    best = found[0]
    assert (best.id, best.text.strip()) == ("staff.pdf#1", HOLIDAY)
    assert (best.metadata["document"], best.metadata["page"]) == ("staff.pdf", 1)
    assert best.metadata["path"] == str(made.documents / "staff.pdf")
    assert retrieve(index, encoder=encoder, top=3) == found
    assert retrieve(str(made.path), encoder=encoder, top=3, asynchronous=True) == found


def test_the_encoder_is_that_of_the_index(retrieve: Retrieve, made: Library) -> None:
    assert retrieve(made.path, top=1)[0].id == "staff.pdf#1"
    assert retrieve(made.path, encoder="english", top=1)[0].id == "staff.pdf#1"
    with pytest.raises(glie.EncoderError, match="made with encoder 'english'"):
        retrieve(made.path, encoder="minilm-384")


def test_any_function_may_encode(retrieve: Retrieve, made: Library, encoder: Encoder) -> None:
    asked: list[str] = []

    def encode(texts: Sequence[str]) -> Any:
        asked.extend(texts)
        return encoder.encode_queries(["invoice for oil"])

    assert retrieve(made.path, encoder=encode, top=1)[0].id == "scan.png#1"
    assert asked == [QUESTION]
    with pytest.raises(glie.InputError, match=r"expected one .* array for one question, found 2"):
        retrieve(made.path, encoder=lambda texts: encoder.encode_queries(["one", "two"]))
    with pytest.raises(glie.InputError, match=r"encoder: expected .*, found int"):
        retrieve(made.path, encoder=3)


def test_a_scanned_page_is_read_again(retrieve: Retrieve, made: Library, encoder: Encoder) -> None:
    best = retrieve(made.path, "Who sent a bill for lubricant?", encoder=encoder)
    scan = next(page for page in best if page.id == "scan.png#1")
    assert "Invoice for turbine oil" in scan.text
    assert scan.metadata["origin"] == "ocr"


def test_what_is_wrong_is_said(retrieve: Retrieve, made: Library, tmp_path: Path) -> None:
    with pytest.raises(glie.InputError, match="the question is empty"):
        retrieve(made.path, "  ")
    with pytest.raises(glie.IndexFolderError, match="nothing"):
        retrieve(tmp_path / "nothing")
    with pytest.raises(glie.InputError, match="top: expected a whole number of at least 1"):
        retrieve(made.path, top=0)
    with pytest.raises(glie.InputError, match="shortlist: expected a whole number"):
        retrieve(made.path, shortlist=-1)
    glie.Index.create(tmp_path / "empty.glie")
    assert retrieve(tmp_path / "empty.glie") == []
    unnamed = glie.Index.create(tmp_path / "unnamed.glie")
    unnamed.add(glie.Pages([[[1.0, 0.0]]], ids=["p"]))
    with pytest.raises(glie.EncoderError, match="does not name the encoder"):
        retrieve(unnamed)
    (page,) = retrieve(unnamed, encoder=lambda texts: [[[0.6, 0.8]]])  # vectors of one's own
    assert (page.id, page.text, page.metadata) == ("p", "", {})
    assert page.score == pytest.approx(0.6, abs=1e-3)


def test_text_that_cannot_be_read_is_not_left_out_in_silence(
    retrieve: Retrieve, made: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(glie.MissingExtraError, match=r"glie\[documents\]"):
        retrieve(made.path, encoder=encoder)


def test_a_folder_is_followed_and_an_index_is_not(
    made: Library, tmp_path: Path, encoder: Encoder
) -> None:
    copy = shutil.copytree(made.path, tmp_path / "copy.glie")
    opened = glie.Index.open(copy)
    by_path = langchain.GlieRetriever(index=copy, encoder=encoder, top=1)
    by_index = langchain.GlieRetriever(index=opened, encoder=encoder, top=1)
    assert by_path.invoke(QUESTION)[0].id == by_index.invoke(QUESTION)[0].id == "staff.pdf#1"
    glie.Index.open(copy).delete(["staff.pdf#1"])
    assert by_path.invoke(QUESTION)[0].id != "staff.pdf#1"
    assert by_index.invoke(QUESTION)[0].id == "staff.pdf#1"


def test_where(made: Library, encoder: Encoder) -> None:
    for host in (by_langchain, by_llama_index):
        one = host(made.path, encoder=encoder, where={"document": "annual/report.pdf"})
        assert {page.metadata["document"] for page in one} == {"annual/report.pdf"}
        assert len(one) == 2
        second = host(
            made.path,
            encoder=encoder,
            where=lambda name, metadata: name.endswith("#2") and metadata["page"] == 2,
        )
        assert [page.id for page in second] == ["annual/report.pdf#2"]
        assert host(made.path, encoder=encoder, where=lambda name, metadata: False) == []


def test_filters_in_the_words_of_the_host(made: Library, encoder: Encoder) -> None:
    from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

    later = MetadataFilters(
        filters=[MetadataFilter(key="page", value=1, operator=FilterOperator.GT)]
    )
    assert [p.id for p in by_llama_index(made.path, encoder=encoder, filters=later)] == [
        "annual/report.pdf#2"
    ]
    with pytest.raises(glie.InputError, match="where, filters: give one of them"):
        llama_index.GlieRetriever(made.path, where={"page": 1}, filters=later)

    after = {"field": "meta.page", "operator": ">", "value": 1}
    assert [p.id for p in by_haystack(made.path, encoder=encoder, filters=after)] == [
        "annual/report.pdf#2"
    ]
    retriever = haystack.GlieRetriever(made.path, encoder, filters=after)
    other = {"field": "meta.document", "operator": "==", "value": "staff.pdf"}
    assert [d.id for d in retriever.run(QUESTION, filters=other)["documents"]] == ["staff.pdf#1"]
    assert len(retriever.run(QUESTION, filters={}, top_k=2)["documents"]) == 2


def test_a_langchain_chain(made: Library, encoder: Encoder) -> None:
    """Retriever, prompt, model and parser, as a user composes them; the model repeats its prompt."""
    retriever = langchain.GlieRetriever(index=made.path, encoder=encoder, top=1)

    def together(documents: list[Document]) -> str:
        return "\n".join(
            f"[{d.metadata['document']}, page {d.metadata['page']}] {d.page_content}"
            for d in documents
        )

    prompt = ChatPromptTemplate.from_template("Answer from:\n{context}\nQuestion: {question}")
    chain = (
        {"context": retriever | together, "question": RunnablePassthrough()}
        | prompt
        | ParrotFakeChatModel()
        | StrOutputParser()
    )
    answer = chain.invoke(QUESTION)
    assert f"[staff.pdf, page 1] {HOLIDAY}" in answer
    assert QUESTION in answer
    assert asyncio.run(chain.ainvoke(QUESTION)) == answer
    both = retriever.batch([QUESTION, "capital expenditure"])
    assert [documents[0].id for documents in both] == ["staff.pdf#1", "annual/report.pdf#1"]
    assert len(retriever.invoke(QUESTION, top=2)) == 2
    other = retriever.invoke(QUESTION, where={"document": "log.txt"})
    assert [document.id for document in other] == ["log.txt#1"]


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_a_langchain_retriever_is_saved(made: Library) -> None:
    for index in (made.path, glie.Index.open(made.path)):
        retriever = langchain.GlieRetriever(
            index=index, encoder="english", top=2, where={"page": 1}
        )
        text = dumps(retriever)
        again = loads(text, allowed_objects=[langchain.GlieRetriever], valid_namespaces=["glie"])
        assert isinstance(again, langchain.GlieRetriever)
        assert (again.index, again.encoder, again.top) == (str(made.path), "english", 2)
        assert again.invoke(QUESTION) == retriever.invoke(QUESTION)
    in_folder = langchain.GlieRetriever(index=made.path, encoder=Path("models/tiny"))
    assert in_folder.lc_attributes["encoder"] == "models/tiny"


def test_a_llama_index_query_engine(made: Library, encoder: Encoder) -> None:
    """The engine's prompt, which the mock model repeats, holds the page and what is worth citing."""
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    retriever = llama_index.GlieRetriever(made.path, encoder, top=1)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    response = engine.query("capital expenditure")
    assert CAPITAL in str(response)
    assert "document: annual/report.pdf" in str(response)
    assert "page: 1" in str(response)
    assert str(made.documents) not in str(response)  # where files lie is no model's business
    (source,) = response.source_nodes
    assert (source.node_id, source.node.ref_doc_id) == ("annual/report.pdf#1", "annual/report.pdf")
    assert source.metadata["path"] == str(made.documents / "annual" / "report.pdf")


def test_a_haystack_pipeline(made: Library) -> None:
    """Retriever, prompt builder and generator, saved and loaded again."""
    from haystack import Pipeline
    from haystack.components.builders import ChatPromptBuilder
    from haystack.components.generators.chat import MockChatGenerator
    from haystack.dataclasses import ChatMessage

    template = "{% for d in documents %}[{{ d.id }}] {{ d.content }}{% endfor %}\n{{ query }}"
    pipeline = Pipeline()
    pipeline.add_component("retriever", haystack.GlieRetriever(made.path, top_k=1))
    pipeline.add_component("prompt", ChatPromptBuilder([ChatMessage.from_user(template)]))
    pipeline.add_component("model", MockChatGenerator())
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "model.messages")
    asked = {"retriever": {"query": QUESTION}, "prompt": {"query": QUESTION}}
    reply = pipeline.run(asked)["model"]["replies"][0].text
    assert reply.split("\n")[0] == f"[staff.pdf#1] {HOLIDAY}"
    assert reply.endswith(QUESTION)

    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["glie.*"])
    assert again.to_dict()["components"] == pipeline.to_dict()["components"]
    assert again.run(asked)["model"]["replies"][0].text == reply
    assert asyncio.run(again.run_async(asked))["model"]["replies"][0].text == reply


def test_a_haystack_retriever_is_saved(made: Library, encoder: Encoder) -> None:
    filters = {"field": "meta.page", "operator": "==", "value": 1}
    retriever = haystack.GlieRetriever(
        glie.Index.open(made.path), encoder, top_k=3, filters=filters, shortlist=5
    )
    data = retriever.to_dict()
    assert data == {
        "type": "glie.integrations.haystack.GlieRetriever",
        "init_parameters": {
            "index": str(made.path),
            "encoder": "english",
            "top_k": 3,
            "filters": filters,
            "shortlist": 5,
        },
    }
    again = haystack.GlieRetriever.from_dict(data)
    again.warm_up()
    assert again.run(QUESTION) == retriever.run(QUESTION)
    in_folder = haystack.GlieRetriever(made.path, Path("models/tiny"))
    assert in_folder.to_dict()["init_parameters"]["encoder"] == "models/tiny"
    with pytest.raises(glie.InputError, match="a function cannot be saved with a pipeline"):
        haystack.GlieRetriever(made.path, lambda texts: []).to_dict()
