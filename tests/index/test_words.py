"""Words in an index: pages are added with their texts, and searched by meaning, words or both."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.candidates import build
from glie.index.writer import SegmentWriter
from glie.search.hybrid import BEST, BY_WORDS, LEAST_RANGE, WEIGHT_OF_WORDS
from glie.search.results import Cost, Hits
from tests.conftest import make_arrays
from tests.lexical.plain import plain_bm25

PAGES = 40
QUERIES = make_arrays(2, seed=99, low=2, high=4)
ASKED = ["w1 w9", "w4 w4 w30"]


def texts_of(count: int, seed: int = 0, words: int = 30, most: int = 99) -> list[str]:
    """A few words are on most pages, most words on a few."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, words, count)
    return [" ".join(f"w{n}" for n in np.minimum(rng.zipf(1.4, size), most)) for size in lengths]


TEXTS = texts_of(PAGES)


def pages_of(count: int, first: int = 0) -> glie.Pages:
    ids = [f"p{i}" for i in range(first, first + count)]
    return glie.Pages(make_arrays(first + count)[first:], ids=ids)


def made(path: Path, texts: Sequence[str | None] | None = TEXTS, **options: Any) -> glie.Index:
    """An index of pages at k = 4, added at once."""
    index = glie.Index.create(path, glie.Codec(k=4), **options)
    count = PAGES if texts is None else len(texts)
    index.add(pages_of(count), [{"n": i % 3} for i in range(count)], texts=texts)
    return index


@pytest.fixture
def index(tmp_path: Path) -> glie.Index:
    return made(tmp_path / "a.glie")


def found(index: glie.Index, mode: str = "lexical", **options: Any) -> list[Any]:
    """Ids and scores of all hits."""
    hits = index.search(QUERIES, top=200, text=ASKED, mode=mode, **options)
    return [(one.ids, one.scores) for one in hits]


def by_words(index: glie.Index, text: str, **options: Any) -> list[str]:
    return index.search(None, top=200, text=[text], mode="lexical", **options)[0].ids


def manifest(index: glie.Index) -> dict[str, Any]:
    return dict(json.loads((index.path / "manifest.json").read_text()))


def test_a_search_by_words(index: glie.Index) -> None:
    assert index.has_text
    for asked, hits in zip(ASKED, index.search(None, 200, text=ASKED, mode="lexical"), strict=True):
        scores, most = plain_bm25(TEXTS, asked)
        shares = {f"p{i}": score / most for i, score in enumerate(scores) if score}
        assert dict(zip(hits.ids, hits.scores, strict=True)) == pytest.approx(shares, rel=1e-4)
        assert hits.scores == sorted(hits.scores, reverse=True)
        assert hits.metadata[0] == {"n": int(hits.ids[0][1:]) % 3}
        assert (hits.meaning, hits.words) == ([0.0] * len(hits), hits.scores)


@pytest.mark.parametrize("bare", [None, 7])
def test_both_together_by_the_plain_formula(tmp_path: Path, bare: int | None) -> None:
    """More pages than are scored by both; with `bare`, every so many has no text."""
    texts: list[str | None] = list(texts_of(300, seed=3))
    if bare is not None:
        texts[::bare] = [None] * len(texts[::bare])
    index = made(tmp_path / "a.glie", texts)
    late = index.search(QUERIES, top=300, mode="late")
    hybrid = index.search(QUERIES, top=20, text=ASKED)
    for query, asked, one, hits in zip(QUERIES, ASKED, late, hybrid, strict=True):
        meaning = {int(name[1:]): score for name, score in zip(one.ids, one.scores, strict=True)}
        scores, most = plain_bm25(texts, asked)
        ordered = sorted(range(300), key=lambda row: (-scores[row], row))[:BY_WORDS]
        listed = sorted({*map(int, list(meaning)[:BEST]), *(r for r in ordered if scores[r])})
        ranked = sorted((meaning[row] for row in listed), reverse=True)[:BEST]
        apart = max(ranked[0] - ranked[-1], LEAST_RANGE * len(query))
        near = [scores[row] for row in listed if texts[row] and meaning[row] >= ranked[-1]]
        expected = {}
        for row in listed:
            words = scores[row] if texts[row] else float(np.median(near))
            part = (meaning[row] - ranked[-1]) / apart
            expected[f"p{row}"] = (part + WEIGHT_OF_WORDS * words / most) / (1 + WEIGHT_OF_WORDS)
        best = sorted(expected.values(), reverse=True)[:20]
        assert hits.scores == pytest.approx(best, abs=1e-4)
        assert hits.scores == pytest.approx([expected[name] for name in hits.ids], abs=1e-4)
        assert hits.meaning is not None
        assert hits.words is not None
        sums = [a + b for a, b in zip(hits.meaning, hits.words, strict=True)]
        assert hits.scores == pytest.approx(sums, abs=1e-6)


def test_the_words_decide_between_alike_pages(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a.glie", glie.Codec(k=4))
    arrays = [make_arrays(1)[0]] * 3
    index.add(glie.Pages(arrays, ids=["a", "b", "c"]), texts=["net", "tax rates", "gross"])
    assert index.search(QUERIES[:1], text=["tax"])[0].ids == ["b", "a", "c"]
    assert index.search(QUERIES[:1], text=["tax"], mode="late")[0].ids == ["a", "b", "c"]
    assert index.search(QUERIES[:1], text=["tax"], mode="lexical")[0].ids == ["b"]


def test_modes_and_their_default(index: glie.Index, tmp_path: Path) -> None:
    late = found(index, "late")
    assert [(h.ids, h.scores) for h in index.search(QUERIES, top=200)] == late
    hybrid = found(index, "hybrid")
    assert [(h.ids, h.scores) for h in index.search(QUERIES, top=200, text=ASKED)] == hybrid
    assert hybrid != late
    assert index.search(QUERIES, text=ASKED)[0].parts.keys() == {"meaning", "words"}
    assert index.search(QUERIES)[0].parts == {}
    bare = made(tmp_path / "b.glie", None)
    assert not bare.has_text
    assert [(h.ids, h.scores) for h in bare.search(QUERIES, top=200, text=ASKED)] == late


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "both", "text": ASKED}, "mode: expected hybrid, late or lexical, found 'both'"),
        ({"mode": "hybrid"}, "mode 'hybrid': expected text, the words of each query"),
        ({"mode": "lexical"}, "mode 'lexical': expected text, the words of each query"),
        ({"text": ASKED[:1]}, "text: found 1 for 2 queries"),
        ({"text": ASKED[0]}, "text: expected a list with the words of each query"),
        ({"text": [1, 2]}, "text: expected a list with the words of each query"),
        ({"text": 5}, "text: expected a list with the words of each query"),
        ({"text": ['"" w1', "w1"]}, "question: found '' in quotes, expected a word in it"),
    ],
)
def test_wrong_questions_are_refused(index: glie.Index, options: dict[str, Any], says: str) -> None:
    with pytest.raises(glie.InputError) as caught:
        index.search(QUERIES, **options)
    assert str(caught.value) == says


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_an_index_without_text_says_so(tmp_path: Path, mode: str) -> None:
    bare = made(tmp_path / "b.glie", None)
    with pytest.raises(
        glie.InputError, match=r"b\.glie: no page has text.*search with mode 'late'"
    ):
        bare.search(QUERIES, text=ASKED, mode=mode)


@pytest.mark.parametrize("codec", [glie.Codec(k=4), glie.Codec(bytes_per_page=200)])
@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["one"], "texts: found 1 for 40 pages; expected one each"),
        ("one text", "texts: expected a list with one for each page, found str"),
        (["fine"] * 39 + [7], "text of page 'p39': expected a string or None"),
        (["fine"] * 39 + [b"bytes"], "text of page 'p39': expected a string or None"),
    ],
)
def test_wrong_texts_are_refused_and_nothing_is_stored(
    tmp_path: Path, codec: glie.Codec, texts: Any, says: str
) -> None:
    index = glie.Index.create(tmp_path / "a.glie", codec)
    before = (index.path / "manifest.json").read_bytes()
    for options in (
        {"pages": pages_of(PAGES), "texts": texts},
        {"pages": [glie.Batch(pages_of(PAGES), texts=texts)]},
    ):
        with pytest.raises(glie.InputError) as caught:
            index.add(**options)
        assert str(caught.value) == says
    with pytest.raises(glie.InputError, match="put them in the Batch"):
        index.add([glie.Batch(pages_of(PAGES))], texts=TEXTS)
    assert (index.path / "manifest.json").read_bytes() == before
    assert list((index.path / "segments").iterdir()) == []


def test_batches_with_and_without_texts(index: glie.Index, tmp_path: Path) -> None:
    other = glie.Index.create(tmp_path / "b.glie", glie.Codec(k=4))
    metadata = [{"n": i % 3} for i in range(PAGES)]
    other.add(
        glie.Batch(pages_of(10, at), metadata[at : at + 10], None, TEXTS[at : at + 10])
        for at in range(0, PAGES, 10)
    )
    assert found(other) == found(index)
    assert found(other, "hybrid") == found(index, "hybrid")
    other.add([glie.Batch(pages_of(5, PAGES)), glie.Batch(pages_of(1, 50), None, None, ["w1"])])
    assert (other.info().pages, other.info().pages_with_text) == (46, 41)
    assert "p50" in by_words(other, "w1")


def test_the_manifest_names_words_only_where_there_are_some(tmp_path: Path) -> None:
    keys = {"number", "pages", "checksum", "images", "tombstones", "deleted"}
    for number, texts in enumerate([None, [None] * PAGES, [""] * PAGES, [" -- "] * PAGES]):
        body = manifest(made(tmp_path / f"{number}.glie", texts))
        assert body["version"] == 1
        assert "text" not in body
        assert [set(entry) for entry in body["segments"]] == [keys]
    index = made(tmp_path / "a.glie")
    body = manifest(index)
    assert (body["version"], body["text"]) == (3, {"language": None})
    assert [set(entry) for entry in body["segments"]] == [{*keys, "postings"}]
    assert (index.path / "segments" / f"{body['segments'][0]['postings']:08d}.lex").exists()
    index.add(pages_of(3, 50))  # a segment of its own, without words
    body = manifest(index)
    assert [entry["postings"] is None for entry in body["segments"]] == [False, True]
    index.delete(index.ids)
    assert manifest(index)["segments"] == []
    assert not index.has_text
    assert glie.Index.open(index.path).search(QUERIES, text=ASKED)[0].ids == []


def test_a_page_without_text_is_not_punished(tmp_path: Path) -> None:
    """It ranks by its meaning, as a page with the usual share of the words."""
    arrays = make_arrays(PAGES)
    arrays[1] = arrays[0]
    query = [arrays[0][:4]]
    ids = [f"p{i}" for i in range(PAGES)]
    for others in ("sea", "the tide of the sea"):  # which lack the words, or have them
        texts: list[str | None] = [others] * PAGES
        texts[1] = None
        index = glie.Index.create(tmp_path / others.replace(" ", ""), glie.Codec(k=4))
        index.add(glie.Pages(arrays, ids=ids), texts=texts)
        hits = index.search(query, text=["the tide"], top=PAGES)[0]
        assert hits.ids[:2] == ["p0", "p1"]
        assert hits.scores[0] == pytest.approx(hits.scores[1])
        assert "p1" not in by_words(index, "the tide")


def test_unknown_words_leave_the_order_of_meaning(index: glie.Index) -> None:
    late = index.search(QUERIES, top=PAGES, mode="late")
    for text in ("unknown words", "?!"):
        hybrid = index.search(QUERIES, top=PAGES, text=[text] * 2)
        assert [hits.ids for hits in hybrid] == [hits.ids for hits in late]
        assert hybrid[0].words == [0.0] * PAGES
        assert index.search(None, text=[text], mode="lexical")[0].ids == []


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_quotes_and_exclusions(index: glie.Index, mode: str) -> None:
    def ids(text: str, **options: Any) -> set[str]:
        hits = index.search(QUERIES[:1], top=PAGES, text=[text], mode=mode, **options)[0]
        return set(hits.ids)

    having = {
        word: {f"p{i}" for i, text in enumerate(TEXTS) if word in text.split()}
        for word in ("w1", "w2", "w3")
    }
    everyone = set(index.ids)
    assert ids('w1 "w2"') == having["w2"]
    assert ids('"w2 w3"') == having["w2"] & having["w3"]
    assert ids('"w2" w1 -w3') == having["w2"] - having["w3"]
    asked = having["w1"] if mode == "lexical" else everyone
    assert ids("w1 -w2") == asked - having["w2"]
    assert ids('"unknown"') == set()
    assert ids('w1 "unknown"') == asked  # within a question, quotes may be those of a title
    gone = sorted(having["w2"])[:2]
    index.delete(gone)
    assert ids('w1 "w2"') == having["w2"] - set(gone)
    assert ids("w1 -w2") == asked - having["w2"]
    few = sorted(everyone - set(gone))[:12]
    assert ids('"w2"', ids=few) == having["w2"] & set(few)
    assert ids('"w2"', where={"n": 1}) == {
        p for p in having["w2"] - set(gone) if int(p[1:]) % 3 == 1
    }


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_filters_and_deletions(index: glie.Index, mode: str) -> None:
    every = dict(zip(*found(index, mode)[0], strict=True))
    few = index.ids[5:25]
    (ids, scores), _ = found(index, mode, ids=few)
    assert set(ids) == set(few) & set(every)
    if mode == "lexical":  # whose scores do not depend on the other pages that may be found
        assert scores == [every[name] for name in ids]
    (ids, _), _ = found(index, mode, where={"n": 2})
    assert set(ids) == {name for name in every if int(name[1:]) % 3 == 2}
    assert found(index, mode, ids=[]) == [([], []), ([], [])]
    index.delete(few)
    (ids, _), _ = found(index, mode)
    assert set(ids) == set(every) - set(few)
    with pytest.raises(glie.IdError):
        found(index, mode, ids=few[:1])


def same_words(one: glie.Index, other: glie.Index) -> None:
    """By words they answer alike, to the last bit; together with meaning too."""
    assert one.ids == other.ids
    for mode in ("lexical", "hybrid"):
        assert found(one, mode) == found(other, mode)
    facts = one.info(), other.info()
    assert facts[0].pages_with_text == facts[1].pages_with_text
    assert one.verify().whole


def test_only_live_pages_count(index: glie.Index, tmp_path: Path) -> None:
    gone = index.ids[3:20:2]
    fresh = glie.Index.create(tmp_path / "b.glie", glie.Codec(k=4))
    keep = [i for i in range(PAGES) if f"p{i}" not in gone]
    arrays = make_arrays(PAGES)
    some = glie.Pages([arrays[i] for i in keep], ids=[f"p{i}" for i in keep])
    fresh.add(some, [{"n": i % 3} for i in keep], texts=[TEXTS[i] for i in keep])
    index.delete(gone)
    same_words(index, fresh)
    index.compact()
    same_words(index, fresh)
    same_words(glie.Index.open(index.path), fresh)
    assert index.info().text_bytes == fresh.info().text_bytes


def test_replaced_pages_have_their_new_words(index: glie.Index) -> None:
    index.add(pages_of(1), texts=["brandnew"], replacing=["p0"])
    assert by_words(index, "brandnew") == ["p0"]
    index.add(pages_of(1), replacing=["p0"])
    assert by_words(index, "brandnew") == []


def test_many_small_additions(index: glie.Index, tmp_path: Path) -> None:
    other = glie.Index.create(tmp_path / "b.glie", glie.Codec(k=4))
    for at, text in enumerate(TEXTS):
        other.add(pages_of(1, at), [{"n": at % 3}], texts=[text])
    assert other.info().segments < 8
    same_words(other, index)
    other.compact()
    same_words(other, index)
    files = [path.suffix for path in (other.path / "segments").iterdir()]
    assert sorted(files) == [".lex", ".seg"]


def test_segments_of_bounded_size(
    index: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postings count in the size at which a segment is written."""
    monkeypatch.setattr("glie.index.writer.SEGMENT_BYTES", 4000)
    monkeypatch.setattr("glie.index.adding.PAGES_PER_STEP", 5)
    other = made(tmp_path / "b.glie")
    assert other.info().segments > 1
    same_words(other, index)


def test_merged_indexes(index: glie.Index, tmp_path: Path) -> None:
    parts = []
    for name, first, last in (("b", 0, 25), ("c", 25, PAGES)):
        part = glie.Index.create(tmp_path / f"{name}.glie", glie.Codec(k=4))
        metadata = [{"n": i % 3} for i in range(first, last)]
        part.add(pages_of(last - first, first), metadata, texts=TEXTS[first:last])
        parts.append(part)
    parts[0].merge(parts[1])
    same_words(parts[0], index)


@pytest.mark.parametrize("has_text", [0, 1])
def test_merged_with_one_that_has_no_text(tmp_path: Path, has_text: int) -> None:
    parts = []
    for number, name in enumerate("bc"):
        parts.append(glie.Index.create(tmp_path / name, glie.Codec(k=4)))
        texts = TEXTS[:20] if number == has_text else None
        parts[-1].add(pages_of(20, 20 * number), texts=texts)
    words = found(parts[has_text])
    parts[0].merge(parts[1])
    assert len(parts[0]) == 40
    assert found(parts[0]) == words
    assert parts[0].info().pages_with_text == 20
    assert parts[0].verify().whole


def test_merged_languages(index: glie.Index, tmp_path: Path) -> None:
    """One that has no words yet takes the language of the other, unless it was made for one."""
    german = glie.Index.create(tmp_path / "de", glie.Codec(k=4), language="de")
    german.add(pages_of(2, 60), texts=["die Häuser", "das Schiff"])
    for one, other in ((index, german), (german, index)):
        before = one.ids
        with pytest.raises(glie.InputError, match="indexes that are merged share it"):
            one.merge(other)
        assert one.ids == before
    empty = glie.Index.create(tmp_path / "empty", glie.Codec(k=4))
    empty.merge(german)
    assert empty.language == "german"
    assert by_words(empty, "Haus") == ["p60"]
    french = glie.Index.create(tmp_path / "fr", glie.Codec(k=4), language="fr")
    with pytest.raises(glie.InputError, match=r"in german, those of .* in french"):
        french.merge(german)
    french.merge(made(tmp_path / "bare", None))
    assert french.language == "french"


def test_a_shrunk_index_keeps_its_words(index: glie.Index, tmp_path: Path) -> None:
    before = found(index)
    now = index.info().lean_bytes // PAGES
    small = index.shrunk(tmp_path / "small.glie", bytes_per_page=now * 3 // 4)
    assert found(small) == before
    assert small.codec.config.text_bytes > 0
    facts = small.info()
    assert (facts.pages_with_text, facts.text_bytes) == (PAGES, index.info().text_bytes)
    german = glie.Index.create(tmp_path / "de", glie.Codec(k=4), language="de")
    german.add(pages_of(PAGES))
    assert german.shrunk(tmp_path / "dé", bytes_per_page=100).language == "german"


def test_a_shrunk_index_keeps_room_for_codes(tmp_path: Path) -> None:
    """Its words take more than the smaller budget."""
    long = [" ".join(f"w{i * n}" for n in range(300)) for i in range(60)]
    index = glie.Index.create(tmp_path / "a", glie.Codec(k=8))
    index.add(pages_of(60), texts=long)
    small = index.shrunk(tmp_path / "b", bytes_per_page=200)
    assert small.codec.config.code_bytes == 130
    assert by_words(small, "w7") == by_words(index, "w7")
    few = glie.Index.create(tmp_path / "c", glie.Codec(k=8))  # of which the folder takes most
    few.add(pages_of(15), texts=long[:15])
    assert few.shrunk(tmp_path / "d", bytes_per_page=260).codec.config.code_bytes >= 130


def test_words_count_in_a_budget(tmp_path: Path) -> None:
    """700 pages come in batches, so that the codebook made of the first weighs nothing."""
    texts, arrays = texts_of(700, words=150, most=10_000), make_arrays(700, dim=64)

    def batches(with_text: bool) -> list[glie.Batch]:
        return [
            glie.Batch(
                glie.Pages(arrays[at : at + 50], ids=[f"p{i}" for i in range(at, at + 50)]),
                texts=texts[at : at + 50] if with_text else None,
            )
            for at in range(0, 700, 50)
        ]

    made = []
    for with_text in (False, True):
        index = glie.Index.create(tmp_path / str(with_text), glie.Codec(bytes_per_page=520))
        index.add(batches(with_text))
        assert index.info().lean_bytes / 700 <= 520
        made.append(index)
    plain, index = made
    settings = index.codec.config
    assert plain.codec.config.text_bytes == 0
    assert "text_bytes" not in manifest(plain)["codec"]
    assert settings.text_bytes == pytest.approx(index.info().text_bytes / 700, rel=0.2)
    assert settings.bytes_per_page == 520
    assert glie.Index.open(index.path).codec.config == settings
    index.codec.save(tmp_path / "codec")
    assert glie.Codec.load(tmp_path / "codec").config == settings


def test_half_of_the_pages_have_text(tmp_path: Path) -> None:
    """The bytes of words are those of all pages, also of batches without texts."""
    found: list[int] = []
    for texts in (texts_of(20, words=60), None):
        index = glie.Index.create(tmp_path / str(len(found)), glie.Codec(bytes_per_page=400))
        some = glie.Batch(pages_of(20), texts=texts_of(20, words=60))
        index.add([some, glie.Batch(pages_of(20, 20), texts=texts)])
        found.append(index.codec.config.text_bytes)
    assert found[1] < 0.75 * found[0]


def test_words_that_leave_little_of_a_budget(tmp_path: Path) -> None:
    long = [" ".join(f"w{i}-{n}" for n in range(400)) for i in range(30)]
    index = glie.Index.create(tmp_path / "a", glie.Codec(bytes_per_page=200))
    index.add(pages_of(30), texts=long)
    assert index.codec.config.code_bytes == 130
    assert index.codec.k >= 1
    assert by_words(index, "w7-399")[0] == "p7"


def test_one_codec_for_all_shards(tmp_path: Path) -> None:
    """A codec that does not adapt is the same whatever the texts, so that shards can be merged."""
    first = glie.Index.create(tmp_path / "first", glie.Codec(bytes_per_page=300))
    first.add(pages_of(PAGES), texts=TEXTS)
    adapted = first.codec.frozen
    assert adapted.config.text_bytes > 0
    shipped = glie.Codec(bytes_per_page=300, adapt=False)
    for codec, dim in ((adapted, 16), (shipped, shipped.dim)):
        shards = []
        for number, words in enumerate((5, 200)):
            ids = [f"{number}-{i}" for i in range(20)]
            shards.append(glie.Index.create(tmp_path / f"{dim}-{number}", codec))
            arrays = make_arrays(20, seed=number, dim=dim or 16)
            shards[-1].add(glie.Pages(arrays, ids=ids), texts=texts_of(20, number, words))
            assert shards[-1].codec.config == codec.config
        shards[0].merge(shards[1])
        assert shards[0].info().pages_with_text == 40


@pytest.mark.parametrize(
    ("encoder", "given", "language"),
    [
        (None, None, None),
        ("english", None, "english"),
        ("minilm", None, "english"),
        ("multilingual", None, None),
        ("english", "none", None),
        ("english", "de", "german"),
        (None, "French", "french"),
    ],
)
def test_the_language(
    tmp_path: Path, encoder: str | None, given: str | None, language: str | None
) -> None:
    index = glie.Index.create(tmp_path / "a", glie.Codec(k=2), encoder=encoder, language=given)
    assert index.language == language
    index.add(pages_of(2), texts=["running nationalised", "walks"])
    again = glie.Index.open(tmp_path / "a")
    assert (again.language, again.info().language) == (language, language)
    assert manifest(again)["text"] == {"language": language}
    assert (by_words(again, "run") == ["p0"]) == (language == "english")


def test_an_unknown_language_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(glie.InputError, match=r"language: found 'klingon', expected none or one"):
        glie.Index.create(tmp_path / "a", language="klingon")
    assert not (tmp_path / "a").exists()


def test_a_large_index_with_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CANDIDATE_PAGES", 200)
    texts = [f"{text} own{i}" for i, text in enumerate(texts_of(300, seed=3))]
    index = made(tmp_path / "a.glie", texts)
    body = manifest(index)
    assert body["version"] == 3
    assert {"postings", "signatures"} <= set(body["segments"][0])
    assert "finder" in body
    arrays = make_arrays(300)
    for row in (0, 150, 299):
        for exact in (None, False, True):
            text = [f"own{row} w1"]
            hits = index.search([arrays[row][:5]], text=text, exact=exact)[0]
            assert hits.ids[0] == f"p{row}"
            assert (hits.cost.pages_estimated > 0) == (exact is not True)
        # so few pages are left that all of them are scored
        hits = index.search([arrays[row][:5]], text=[f'"own{row}"'])[0]
        assert (hits.ids, hits.cost.pages_estimated) == ([f"p{row}"], 0)
    index.delete(["p150"])
    assert "p150" not in index.search([arrays[150][:5]], text=["own150"], exact=False)[0].ids
    assert index.verify().whole


def test_some_of_the_hits() -> None:
    hits = Hits(["a", "b", "c"], [3, 2, 1], [{"n": 0}, {}, {}], Cost(3, 0, 0, 0.1))
    assert hits.take([2, 0]) == Hits(["c", "a"], [1, 3], [{}, {"n": 0}], hits.cost)
    both = dataclasses.replace(hits, meaning=[1, 2, 0], words=[2, 0, 1])
    taken = both.take([1])
    assert (taken.ids, taken.meaning, taken.words) == (["b"], [2], [0])
    assert taken.parts == {"meaning": [2], "words": [0]}
    assert hits.parts == {}


def reading(texts: Sequence[str | None]) -> tuple[Callable[..., str | None], list[str]]:
    """A function that knows the text of each page, and the pages that it is asked for."""
    asked: list[str] = []

    def text(page_id: str, metadata: dict[str, Any]) -> str | None:
        assert metadata == {"n": int(page_id[1:]) % 3}
        asked.append(page_id)
        return texts[int(page_id[1:])]

    return text, asked


@pytest.mark.parametrize("step", [512, 7])
def test_compact_gives_words_to_pages_that_have_none(
    index: glie.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    assert SegmentWriter.copy.__kwdefaults__ is not None
    monkeypatch.setitem(SegmentWriter.copy.__kwdefaults__, "step", step)
    other = made(tmp_path / "b.glie", [t if i % 4 == 0 else None for i, t in enumerate(TEXTS)])
    text, asked = reading(TEXTS)
    other.compact(text)
    assert asked == [f"p{i}" for i in range(PAGES) if i % 4]
    same_words(other, index)
    asked.clear()
    other.compact(text)
    assert asked == []
    same_words(other, index)


def test_compact_with_texts_of_an_index_without(tmp_path: Path, index: glie.Index) -> None:
    bare = made(tmp_path / "b.glie", None)
    late = found(bare, "late")
    text, asked = reading(TEXTS)
    bare.delete(["p3"])
    bare.compact(text)
    assert "p3" not in asked
    assert found(bare, "late") != late
    index.delete(["p3"])
    same_words(bare, index)
    asked.clear()
    bare.compact(text)
    assert asked == []  # every page has words
    nothing = made(tmp_path / "c.glie", None)
    nothing.compact(lambda page_id, metadata: None)
    assert not nothing.has_text
    assert manifest(nothing)["version"] == 1


def test_compact_with_texts_in_a_language(tmp_path: Path, index: glie.Index) -> None:
    bare = made(tmp_path / "b.glie", None)
    bare.compact(lambda page_id, metadata: "die Häuser", language="de")
    assert bare.language == "german"
    assert len(by_words(bare, "Haus")) == PAGES
    bare.compact(lambda page_id, metadata: "", language="german")
    for one in (bare, index):
        with pytest.raises(glie.InputError, match="not in fr; leave language out"):
            one.compact(lambda page_id, metadata: "", language="fr")


@pytest.mark.parametrize("texts", [lambda page_id, metadata: 7, lambda page_id, metadata: 1 / 0])
def test_a_compaction_that_fails_changes_nothing(tmp_path: Path, texts: Any) -> None:
    bare = made(tmp_path / "b.glie", None)
    before = (bare.path / "manifest.json").read_bytes()
    with pytest.raises((glie.InputError, ZeroDivisionError)):
        bare.compact(texts)
    assert (bare.path / "manifest.json").read_bytes() == before
    bare.add(pages_of(1, 90))
    assert bare.verify().whole


def test_the_words_on_most_pages(tmp_path: Path) -> None:
    texts = [f"die Kosten von {n % 3} in 2018" for n in range(30)]
    texts[:16] = [f"Gewinne {n}" for n in range(16)]
    index = made(tmp_path / "a.glie", texts, language="de")
    assert index.common_terms("die Kosten 2018") == set()
    index.delete([f"p{n}" for n in range(4)])
    assert index.common_terms("die Kosten 2018") == {"die", "kost"}  # of 26 pages, 14; not numbers
    index.delete([f"p{n}" for n in range(4, 11)])
    assert index.common_terms("die Kosten 2018") is None  # too few pages to tell
    assert made(tmp_path / "b.glie", None).common_terms("die") is None


def test_without_the_pages_that_have_text(tmp_path: Path) -> None:
    index = made(tmp_path / "a.glie", ["one", None, "two", None], language="de")
    index.delete(["p0"])
    assert index.has_text
    index.delete(["p2"])
    for opened in (index, glie.Index.open(index.path)):
        assert (opened.has_text, opened.info().pages_with_text, len(opened)) == (False, 0, 2)
        assert opened.search(QUERIES, text=ASKED)[0].words is None  # meaning alone
        with pytest.raises(glie.InputError, match="no page has text"):
            opened.search(QUERIES, text=ASKED, mode="lexical")
    index.add(pages_of(1, 9), texts=["drei"])
    assert (index.has_text, index.language) == (True, "german")
