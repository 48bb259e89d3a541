"""Questions in words: by one encoder, loaded once, and pages that say what they found."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.ingest import file_digest
from glie.retriever import Retriever, as_indexed, picture_of, text_of
from tests.conftest import make_arrays
from tests.documents.test_documents import make_pdf


class Numbered:
    """An encoder whose question is the number of the page that it is about."""

    name, revision = "numbered", "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[Any]:
        raise AssertionError("pages are there already")

    def encode_queries(self, texts: Sequence[str]) -> list[Any]:
        return [make_arrays(30)[int(text)] for text in texts]


def test_ask(index: glie.Index) -> None:
    retriever = Retriever(index, Numbered())
    pages, cost, seconds = retriever.ask("7", 3)
    assert (pages[0].id, pages[0].metadata) == ("a.pdf#8", {"document": "1.pdf", "page": 7})
    assert [page.score for page in pages] == sorted((p.score for p in pages), reverse=True)
    assert (len(pages), cost.pages_scanned, seconds >= 0) == (3, 30, True)
    some = retriever.ask("7", 30, documents=["0.pdf", "1.pdf"], where={"page": [6, 7, 8]})
    assert {page.id for page in some.pages} == {"a.pdf#7", "a.pdf#8"}
    some = retriever.ask("7", 30, documents=["0.pdf"], where=lambda name, _: name < "a.pdf#2")
    assert {page.id for page in some.pages} == {
        "a.pdf#1",
        "a.pdf#10",
        "a.pdf#13",
        "a.pdf#16",
        "a.pdf#19",
    }
    assert retriever.ask("7", documents=[]).pages == []
    with pytest.raises(glie.IdError, match="neither a document nor a page"):
        retriever.ask("7", documents=["9.pdf"])


def test_an_encoder_of_other_weights_is_refused(tmp_path: Path) -> None:
    made = glie.Index.create(tmp_path / "x.glie", encoder={"name": "numbered", "revision": "2"})
    made.add(glie.Pages(make_arrays(3)))
    with pytest.raises(glie.EncoderError, match=r"not encoder 'numbered' .revision 1."):
        Retriever(made, Numbered()).ask("1")


def test_threads_share_one_encoder(index: glie.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import glie.retriever

    loaded: list[object] = []
    slow, real = threading.Event(), glie.retriever.encode_by

    def load(*given: Any) -> Any:
        loaded.append(given)
        slow.wait(0.05)
        return real(*given)

    monkeypatch.setattr(glie.retriever, "encode_by", load)
    retriever, found = Retriever(index, Numbered()), list[str]()

    def ask(question: str) -> None:
        found.append(retriever.ask(question, 1).pages[0].id)

    threads = [threading.Thread(target=ask, args=[str(i)]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"a.pdf#{i + 1}" for i in range(8)]
    assert len(loaded) == 1


def test_what_a_page_says(tmp_path: Path) -> None:
    path = make_pdf(tmp_path / "a.pdf", ["First page", "Second page"])
    metadata = {"document": "a.pdf", "page": 2, "path": str(path), "digest": file_digest(path)}
    assert text_of(metadata).strip() == "Second page"
    assert as_indexed(metadata)
    for wrong in (
        {},
        {**metadata, "page": 3},
        {**metadata, "path": 3},
        {**metadata, "path": "gone"},
    ):
        assert text_of(wrong) == ""
    index = glie.Index.create(tmp_path / "x.glie")
    kept = np.random.default_rng(0).bytes(50)
    index.add(
        glie.Pages(make_arrays(3), ["drawn", "kept", "none"]),
        [metadata, metadata, {}],
        images=[None, kept, None],
    )
    drawn = picture_of(index, "drawn")
    assert drawn is not None
    assert drawn.kind == "image/webp"
    assert picture_of(index, "drawn", draw=False) is None
    assert picture_of(index, "kept") is None  # not an image
    assert picture_of(index, "none") is None
    make_pdf(path, ["Another first page", "Another second page"])
    assert not as_indexed(metadata)
