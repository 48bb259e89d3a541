"""Retriever: questions in words, encoded by the encoder that made the index."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import glie
from glie.documents.original import file_digest
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
    import glie.encoders.recorded

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
    import glie.encoders.recorded

    loaded: list[tuple[str, str | None]] = []

    def load(name: str, *, revision: str | None = None) -> Numbered:
        loaded.append((name, revision))
        return Numbered()

    monkeypatch.setattr(glie.encoders.recorded, "load_encoder", load)
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


@pytest.fixture
def worded(tmp_path: Path) -> glie.Index:
    """Pages that begin with their number, in files with their texts."""
    texts = [
        "0 the net income of the year",
        "1 net of tax, an income",
        "2 incomes, nets",
        "3 a file that is gone: income, net",
        "4 net income, in a draft",
    ]
    metadata = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.txt"
        path.write_text(text)
        metadata.append({"path": str(path), "page": 1, "digest": file_digest(path)})
    (tmp_path / "3.txt").unlink()
    made = glie.Index.create(tmp_path / "x.glie", glie.Codec(k=4), language="en")
    pages = glie.Pages(make_arrays(30)[: len(texts)], [str(n) for n in range(len(texts))])
    made.add(pages, metadata, texts=texts)
    return made


def test_a_phrase_is_looked_up_in_the_documents(worded: glie.Index) -> None:
    """Postings know which words a page has, not their order. A page that cannot be read stays."""
    retriever = Retriever(worded, Numbered())
    assert set(retriever.search('"net income"', mode="lexical").ids) == {"0", "3", "4"}
    assert set(retriever.search('"net income" -draft', mode="lexical").ids) == {"0", "3"}
    assert retriever.search('"net income"', 1, mode="lexical").ids[0] in {"0", "3", "4"}
    assert set(retriever.search("net income", mode="lexical").ids) == {*"01234"}
    assert retriever.search('"2"', 1).ids == ["2"]  # hybrid
    (worded.path.parent / "3.txt").write_text("3 another text")  # it has changed: cannot be read
    assert set(retriever.search('"tax net"', mode="lexical").ids) == set()
    found = retriever.search(
        'what is a "tax net"?', mode="lexical"
    ).ids  # a saying that no page has
    assert found[0] == "1"


def test_an_excluded_phrase_is_looked_up_in_the_documents(
    worded: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with its words elsewhere stays. One that cannot be read is left out if it has them."""
    retriever = Retriever(worded, Numbered())

    def found(question: str, **options: Any) -> set[str]:
        return set(retriever.search(question, mode="lexical", **options).ids)

    assert found('income -"net income"') == {"1", "2"}
    assert found('income -"tax net"') == {*"01234"}
    assert found('file -"net tax"') == {"3"}  # not read, but it has no tax
    assert found('net -"net income" -tax') == {"2"}
    assert found('"of tax" -"net income"') == {"1"}
    assert found("income -net-income") == {"1", "2"}
    assert retriever.search('0 -"net income"', 2).ids != ["0", "1"]  # hybrid
    # what is read has an end: of more pages, those with the words are left out
    monkeypatch.setattr("glie.retriever.MOST_READ", 1)
    assert found('income -"net of"', top=3) == {*"234"}  # 0 has both words
    assert found('income -"net of"', top=5) == {*"0234"}


def test_words_alone_need_no_encoder(worded: glie.Index) -> None:
    def encode(texts: Sequence[str]) -> Any:
        raise AssertionError

    hits = Retriever(worded, encode).search("draft", mode="lexical")
    assert (hits.ids, hits.cost.encode_seconds) == (["4"], 0)


def test_what_is_typed_is_checked_before_an_encoder_is_loaded(worded: glie.Index) -> None:
    for question, mode, message in (
        ("-draft", None, "only excludes words"),
        ('"--"', None, "expected a word in it"),
        ("draft", "fuzzy", "mode: expected hybrid, late or lexical, found 'fuzzy'"),
    ):
        with pytest.raises(glie.InputError, match=message):
            Retriever(worded, "nowhere/to-be-found").search(question, mode=mode)


def test_more_like_a_page(index: glie.Index) -> None:
    retriever = Retriever(index, "nowhere/to-be-found")
    hits = retriever.search(like="a.pdf#8", top=3)
    assert (len(hits), "a.pdf#8" in hits.ids) == (3, False)
    codes = index.codes(["a.pdf#8"])
    asked = [codes.vectors[0][codes.counts[0] > 0]]
    assert index.search(asked, 4, normalize=True)[0].ids == ["a.pdf#8", *hits.ids]
    only = retriever.search(like="a.pdf#8", documents=["0.pdf"], where={"page": [0, 3]})
    assert set(only.ids) == {"a.pdf#1", "a.pdf#4"}
    assert len(index.like("a.pdf#8", 100)) == 29
    with pytest.raises(glie.IdError, match="'none' is not in"):
        index.like("none")
    with pytest.raises(glie.InputError, match="top: expected a whole number"):
        index.like("a.pdf#8", 0)
    with pytest.raises(glie.InputError, match="expected no question beside it"):
        retriever.search("7", like="a.pdf#8")


class Seen:
    """An encoder of pictures: a page is the row of its grey pixels."""

    name, revision, reads = "seen", "1", "image"

    def encode_pages(self, pages: Sequence[Any]) -> list[Any]:
        return [make_arrays(30)[page.getpixel((0, 0))[0]] for page in pages]

    def encode_queries(self, texts: Sequence[str]) -> list[Any]:
        raise AssertionError("no question was asked")


def test_a_picture_is_encoded_as_a_page(index: glie.Index, tmp_path: Path) -> None:
    picture = Image.new("L", (2000, 40), 7)
    picture.save(tmp_path / "page.png")
    retriever = Retriever(index, Seen())
    for given in (picture, tmp_path / "page.png", str(tmp_path / "page.png")):
        hits = retriever.search(image=given, top=3)
        assert (hits.ids[0], len(hits), hits.cost.encode_seconds > 0) == ("a.pdf#8", 3, True)
    assert picture.size == (2000, 40)  # the encoder got a smaller copy
    only = retriever.search(image=picture, documents=["0.pdf"], where={"page": [0, 3]})
    assert set(only.ids) == {"a.pdf#1", "a.pdf#4"}
    refused: list[dict[str, Any]] = [{"question": "7"}, {"like": "a.pdf#8"}, {"mode": "lexical"}]
    for wrong in refused:
        with pytest.raises(glie.InputError, match="expected no question beside it"):
            retriever.search(image=picture, **wrong)
    (tmp_path / "no.png").write_text("no picture")
    with pytest.raises(glie.DocumentError, match=r"no\.png: damaged, or not an image"):
        retriever.search(image=tmp_path / "no.png")
    with pytest.raises(glie.InputError, match="a function encodes questions alone"):
        Retriever(index, lambda texts: make_arrays(1)).search(image=picture)


def test_ocr_reads_a_picture_for_an_encoder_of_text(
    index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Read(Numbered):
        def encode_pages(self, pages: Sequence[Any]) -> list[Any]:
            return self.encode_queries(pages)

    monkeypatch.setattr("glie.retriever.picture_text", lambda picture, _: str(picture.width))
    assert Retriever(index, Read()).search(image=Image.new("L", (7, 1))).ids[0] == "a.pdf#8"
    monkeypatch.setattr("glie.retriever.picture_text", lambda picture, _: "")
    with pytest.raises(glie.InputError, match=r"'numbered' reads text, and OCR finds none.*words"):
        Retriever(index, Read()).search(image=Image.new("L", (7, 1)))
