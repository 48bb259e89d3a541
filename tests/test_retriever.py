"""Retriever: questions in words, encoded by the encoder that made the index."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import glie
from glie.identity import EncoderId
from glie.retriever import Retriever, encoder_of, load_recorded
from tests.conftest import make_arrays


class Numbered:
    """An encoder whose question is the number of the page that it is about."""

    name, revision = "numbered", "1"

    def encode_pages(self, pages: Sequence[Any]) -> list[Any]:
        raise AssertionError("pages are there already")

    def encode_queries(self, texts: Sequence[str]) -> list[Any]:
        return [make_arrays(30)[int(text)] for text in texts]


def test_search(index: glie.Index) -> None:
    retriever = Retriever(index, Numbered())
    hits = retriever.search("7", 3)
    first = next(iter(hits))
    assert (first.id, first.metadata) == ("a.pdf#8", {"document": "1.pdf", "page": 7})
    assert hits.scores == sorted(hits.scores, reverse=True)
    assert (len(hits), hits.cost.pages_scanned, hits.cost.encode_seconds > 0) == (3, 30, True)
    some = retriever.search("7", 30, documents=["0.pdf", "1.pdf"], where={"page": [6, 7, 8]})
    assert set(some.ids) == {"a.pdf#7", "a.pdf#8"}
    some = retriever.search("7", 30, documents=["0.pdf"], where=lambda name, _: name < "a.pdf#2")
    assert set(some.ids) == {"a.pdf#1", "a.pdf#10", "a.pdf#13", "a.pdf#16", "a.pdf#19"}
    assert retriever.search("7", documents=[]).ids == []
    with pytest.raises(glie.IdError, match="neither a document nor a page"):
        retriever.search("7", documents=["9.pdf"])


def test_options_go_to_the_search(index: glie.Index) -> None:
    retriever = Retriever(index, Numbered())
    assert retriever.search("7", 3, shortlist=0, exact=True).ids[0] == "a.pdf#8"
    with pytest.raises(glie.InputError, match="shortlist"):
        retriever.search("7", 3, shortlist=-1)


@pytest.mark.parametrize("question", ["", "  ", None])
def test_an_empty_question(index: glie.Index, tmp_path: Path, question: Any) -> None:
    for pages in (index, glie.Index.create(tmp_path / "empty")):
        with pytest.raises(glie.InputError, match="the question is empty"):
            Retriever(pages, Numbered()).search(question)


def test_an_empty_index_needs_no_encoder(tmp_path: Path) -> None:
    made = glie.Index.create(tmp_path / "x.glie", encoder="nowhere/to-be-found")
    assert len(Retriever(made).search("anything")) == 0


def test_a_folder_is_followed_an_open_index_is_not(tmp_path: Path) -> None:
    made = glie.Index.create(tmp_path / "x.glie")
    made.add(glie.Pages(make_arrays(2), ["a", "b"]))
    opened = glie.Index.open(tmp_path / "x.glie")
    follows, stays = Retriever(tmp_path / "x.glie", Numbered()), Retriever(opened, Numbered())
    seen = follows.index
    made.add(glie.Pages([make_arrays(30)[2]], ["c"]))
    assert (follows.search("2", 1).ids, len(seen)) == (["c"], 2)  # an older view stays as it was
    assert (stays.search("2", 1).ids == ["c"], len(stays.index)) == (False, 2)


def test_an_encoder_of_other_weights_is_refused(tmp_path: Path) -> None:
    made = glie.Index.create(tmp_path / "x.glie", encoder={"name": "numbered", "revision": "2"})
    made.add(glie.Pages(make_arrays(3)))
    with pytest.raises(glie.EncoderError, match=r"not encoder 'numbered' .revision 1."):
        Retriever(made, Numbered()).search("1")


def test_threads_share_one_encoder(index: glie.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    import glie.retriever

    loaded: list[object] = []
    slow, real = threading.Event(), glie.retriever.query_encoder

    def load(*given: Any) -> Any:
        loaded.append(given)
        slow.wait(0.05)
        return real(*given)

    monkeypatch.setattr(glie.retriever, "query_encoder", load)
    retriever, found = Retriever(index, Numbered()), list[str]()

    def ask(question: str) -> None:
        found.append(retriever.search(question, 1).ids[0])

    threads = [threading.Thread(target=ask, args=[str(i)]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"a.pdf#{i + 1}" for i in range(8)]
    assert len(loaded) == 1


def test_the_recorded_revision_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model on the Hub may have moved on; the index asks for the revision it was made with."""
    import glie.retriever

    loaded: list[tuple[str, str | None]] = []

    def load(name: str, *, revision: str | None = None) -> Numbered:
        loaded.append((name, revision))
        return Numbered()

    monkeypatch.setattr(glie.retriever, "load_encoder", load)
    made = glie.Index.create(tmp_path / "x.glie", encoder=EncoderId("numbered", "1"))
    made.add(glie.Pages(make_arrays(3)))
    assert len(Retriever(made).search("1")) == 3
    encoder_of(made)
    load_recorded(EncoderId("numbered", "1"))
    assert loaded == [("numbered", "1")] * 3
    encoder_of(made, "elsewhere")  # its revision there is not known
    assert loaded[-1] == ("elsewhere", None)


def test_what_encodes_is_checked(index: glie.Index) -> None:
    with pytest.raises(glie.InputError, match="expected an encoder, its name, or a function"):
        Retriever(index, 3).search("1")  # type: ignore[arg-type]
    for count in (0, 2):
        with pytest.raises(glie.InputError, match=f"one question, found {count}"):
            Retriever(index, lambda texts, n=count: make_arrays(n) if n else []).search("1")
