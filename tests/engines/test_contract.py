"""One contract for all engines: an engine is tested by being added to PLACES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie import engines
from glie.engines import Collection, Engine, collection, exporting
from glie.engines.base import COMPACT, MULTIVECTOR, Restriction
from glie.identity import EncoderId
from glie.kernels.maxsim import maxsim
from glie.pages import Queries
from glie.progress import Progress
from tests.codec.networks import random_codec
from tests.conftest import Floats, make_arrays

# name, location and layout; {} is a new folder, "postgres" an empty database
PLACES = [
    ("qdrant", ":memory:", COMPACT),
    ("qdrant", "{}/qdrant", COMPACT),
    ("qdrant-edge", "{}/edge", COMPACT),
    ("lancedb", "{}/lance", COMPACT),
    ("postgres", "postgres", COMPACT),
    ("qdrant", ":memory:", MULTIVECTOR),
    ("qdrant-edge", "{}/edge", MULTIVECTOR),
    ("lancedb", "{}/lance", MULTIVECTOR),
]
NAMES = ["-".join((name, place.removeprefix("{}/"), layout)) for name, place, layout in PLACES]
CODECS = {
    "free": lambda: glie.Codec(k=4),
    "int2": lambda: glie.Codec(k=3, dtype="int2"),
    "int1": lambda: glie.Codec(k=6, dtype="int1"),
    "fitted": lambda: random_codec(16, 0),
    "budget": lambda: glie.Codec(bytes_per_page=520, adapt=True),
}
COUNT = 40
# what a field may be, some of which compare with a number or begin with a string
NUMBERS = [1, 2, 2.5, -3, 1e30, 2**53 + 1]
ANY = [*NUMBERS, True, None, "2", "é'x", [2], [0, 3], [], [None], [[3]], {"a": 3}, {}]
# what metadata may be: any JSON, and keys that engines write in their own ways
METADATA = [
    {
        "document": f"{i % 3}.pdf",
        "page": i,
        "": i % 4,
        "a.b": {"c": [i % 2, None, {"d": "é\x00'\""}]},
        "half": i / 2,
        "even": i % 2 == 0,
        "mark": "\uffff0\x00\uffff"[: i % 5],
        "none": None if i % 5 else 2**63 - 1,
        "tags": ["x", "y"] if i % 2 else ["x"],
        **({"any": ANY[i]} if i < len(ANY) else {}),
    }
    for i in range(COUNT)
]
Connect = Callable[..., Engine]


@pytest.fixture(params=PLACES, ids=NAMES)
def connect(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connect]:
    """Connects to a collection; those that were connected are closed at the end."""
    name, place, layout = request.param
    monkeypatch.setattr("glie.engines.collection.LAYOUT", layout)
    if name == "postgres":
        place = request.getfixturevalue("postgres")()
    made: list[Engine] = []

    def to(collection: str = "reports") -> Engine:
        made.append(engines.connect(name, place.format(tmp_path), collection))
        return made[-1]

    yield to
    for engine in made:
        engine.close()


@pytest.fixture
def engine(connect: Connect) -> Engine:
    return connect()


def make_index(folder: Path, codec: glie.Codec | None = None, **more: Any) -> glie.Index:
    """Pages of one vector and more, so that some have fewer than k."""
    index = glie.Index.create(folder / "my.glie", codec or glie.Codec(k=4), **more)
    ids = [f"a'\"é.pdf#{i + 1}" for i in range(COUNT)]
    index.add(glie.Pages(make_arrays(COUNT, low=1, high=20), ids=ids), METADATA)
    return index


@pytest.fixture
def index(tmp_path: Path) -> glie.Index:
    return make_index(tmp_path)


def queries() -> list[Floats]:
    return [page[:6] for page in make_arrays(4, seed=9, low=6)]


def assert_same(found: list[glie.Hits], expected: list[glie.Hits]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.ids == theirs.ids
        np.testing.assert_allclose(mine.scores, theirs.scores, rtol=0, atol=1e-4)
        assert mine.metadata == theirs.metadata


@pytest.mark.parametrize("name", CODECS)
def test_the_hits_and_scores_of_an_index(name: str, engine: Engine, tmp_path: Path) -> None:
    index = make_index(tmp_path, CODECS[name]())
    pages, report = engines.export(index, engine)
    assert (report.pages_uploaded, len(pages)) == (COUNT, COUNT)
    assert (pages.dim, pages.codec.k) == (16, index.codec.k)
    ways: list[dict[str, Any]] = [{}, {"shortlist": 0}, {"shortlist": 3}, {"top": 2 * COUNT}]
    for options in ways:
        expected = index.search(queries(), **options)
        assert_same(pages.search(queries(), **options), expected)
        assert_same(pages.search(queries(), **options, exact=True), expected)
        # as wide as this, the means decide nothing
        assert_same(pages.search(queries(), **options, prefetch=COUNT), expected)
    one = pages.search(queries()[:1])
    assert_same(one, index.search(queries()[:1]))
    assert one[0].cost.bytes_read > 0
    assert one[0].cost.seconds > 0


def test_candidates_are_ranked_by_maxsim(engine: Engine, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    questions = Queries(queries())
    codes, _ = next(index.stored())
    ends = np.arange(COUNT) * 4 + np.count_nonzero(codes.counts, axis=1)
    flat = codes.vectors.reshape(-1, 16)
    scores = maxsim(questions.vectors, questions.offsets, flat, np.arange(COUNT) * 4, ends)
    for prefetch in (None, COUNT):
        found = pages._nearest(questions, 7, prefetch, Restriction())
        for entries, mine in zip(found, scores, strict=True):
            assert [entry.id for entry in entries] == [codes.ids[i] for i in np.argsort(-mine)[:7]]


@pytest.mark.parametrize(
    ("settings", "rounding"), [({"datatype": "float32"}, 1e-6), ({}, 0.02)], ids=["whole", "usual"]
)
def test_a_prefetch_takes_the_pages_of_the_nearest_means(
    settings: dict[str, Any], rounding: float, engine: Engine, index: glie.Index
) -> None:
    """As near as their numbers are stored: usually in 4 bits, or 16."""
    pages, _ = engines.export(index, engine, settings=settings)
    codes, _ = next(index.stored())
    used = np.maximum((codes.counts > 0).sum(axis=1), 1)
    means = codes.vectors.sum(axis=1) / used[:, None]
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    for query in queries():
        near = dict(zip(codes.ids, means @ query.mean(axis=0), strict=True))
        hits = pages.search([query], prefetch=5)[0]
        assert len(set(hits.ids)) == 5
        assert min(near[page_id] for page_id in hits.ids) >= sorted(near.values())[-5] - rounding


@pytest.mark.parametrize(
    "where",
    [
        {"document": "1.pdf"},
        {"document": ["1.pdf", "2.pdf"], "even": True},
        {"page": 7.0},  # which is 7
        {"even": 1},  # which is not true
        {"half": [0.5, 3]},
        {"none": None},
        {"none": 2**63 - 1},
        {"": [0, 1]},
        {"a.b": {"c": [1, None, {"d": "é\x00'\""}]}},
        {"tags": [["x", "y"]]},
        {"tags": "x"},  # no page's tags are that
        {"tags": []},
        {"absent": None},
        {},
        {"document": {"!=": "1.pdf"}},
        {"page": {"not in": [1, 2, 3.0]}},
        {"a.b": {"=": {"c": [1, None, {"d": "é\x00'\""}]}}},
        {"absent": {"!=": 1}},
        {"or": [{"document": "1.pdf"}, {"even": True, "": [0, 1]}]},
        {"and": [{"not": {"or": [{"page": [1, 2]}, {"even": True}]}}, {"": {"in": [1, 3]}}]},
        {"not": {"document": []}},
        {"or": []},
        {"not": {"and": []}},
        {"or": [{"not": {}}, {"page": 5}]},
        {"page": {">=": 3, "<": 9}},
        {"half": {">": 2.5}},
        {"not": {"half": {"<=": 3}}},
        {"even": {">=": 0}},  # true is no number
        {"none": {">": 5}},
        {"none": {"exists": True}},
        {"mark": ["\uffff0\x00", "\uffff"]},
        {"a.b": {"exists": True}},
        {"absent": {"exists": False}},
        *({"any": {sign: 2}} for sign in ("<", "<=", ">", ">=")),
        {"not": {"any": {">=": -1e9}}},
        {"any": {">": 2**53 - 1}},
        {"any": {"exists": True}},
        {"or": [{"any": {"exists": False}}, {"page": {"<": 2}, "even": {"!=": True}}]},
    ],
    ids=str,
)
def test_where_means_the_same(where: dict[str, Any], stored: tuple[glie.Index, Collection]) -> None:
    index, pages = stored
    expected = index.search(queries(), where=where)
    assert_same(pages.search(queries(), where=where), expected)
    assert_same(pages.search(queries(), where=where, prefetch=COUNT), expected)


def test_pages_without_metadata(engine: Engine, index: glie.Index) -> None:
    """They match what others must not have."""
    more = glie.Pages(make_arrays(3, seed=4), ids=["x", "y", "z"])
    index.add(more, [{}, {"page": 1}, {}])
    pages, _ = engines.export(index, engine)
    for where in ({"page": {"!=": 1}}, {"not": {"document": {"in": ["0.pdf", "1.pdf"]}}}):
        found = pages.search(queries(), top=COUNT + 3, where=where)
        assert {"x", "z"} <= set(found[0].ids)
        assert_same(found, index.search(queries(), top=COUNT + 3, where=where))


@pytest.mark.parametrize(
    ("where", "said", "knows"),
    [
        ({"mark": {"prefix": "\uffff0"}}, "'mark' prefix .* no prefixes", "LanceDB Postgres"),
        ({"mark": {"prefix": "\uffff0\x00"}}, "'mark' prefix .* no prefixes", "Postgres"),
        ({"document": {">=": "1"}}, "'document' >= .* compares numbers only", ""),
        ({"any": {">": 2**53}}, "'any' > .* compares numbers below 2.53 only", "Postgres"),
        (
            {"not": {"or": [{"": {"exists": True}}]}},
            "'' exists .* no empty names",
            "Qdrant QdrantEdge Postgres",
        ),
        (
            {"page": 1, "document": {"prefix": "1"}},
            "'document' prefix .* no prefixes",
            "LanceDB Postgres",
        ),
        ({"any": {"prefix": "é'"}}, "'any' prefix .* no prefixes", "LanceDB Postgres"),
        ({"not": {"any": {"prefix": "2"}}}, "'any' prefix .* no prefixes", "LanceDB Postgres"),
        ({"document": {"prefix": '"'}}, "'document' prefix .* no prefixes", "Postgres"),
        (
            {"a\\": {"<": 1}},
            r"'a\\\\' < .* no names with quotes or backslashes",
            "LanceDB Postgres",
        ),
    ],
    ids=str,
)
def test_filters_that_an_engine_does_not_know(
    where: dict[str, Any], said: str, knows: str, stored: tuple[glie.Index, Collection]
) -> None:
    index, pages = stored
    if type(pages.engine).__name__ in knows.split():
        assert_same(pages.search(queries(), where=where), index.search(queries(), where=where))
        return
    with pytest.raises(glie.InputError, match=f"where: {said}") as error:
        pages.search(queries(), where=where)
    assert f"is not possible in {pages.path}, which" in str(error.value)
    assert "use its own `filter`, or search the index" in str(error.value)


@pytest.fixture(scope="module", params=[PLACES[0], *PLACES[2:]], ids=[NAMES[0], *NAMES[2:]])
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[glie.Index, Collection]]:
    """An index and its export, for tests that only read."""
    name, place, layout = request.param
    if name == "postgres":
        place = request.getfixturevalue("postgres")()
    folder = tmp_path_factory.mktemp("stored")
    index = make_index(folder)
    engine = engines.connect(name, place.format(folder), "reports")
    pages, _ = engines.export(index, engine, layout=layout)
    assert pages.layout == engine.layout() == layout
    with pages:
        yield index, pages


def test_restricted_to_ids(stored: tuple[glie.Index, Collection]) -> None:
    index, pages = stored
    some = index.ids[3:9]
    assert_same(pages.search(queries(), ids=some), index.search(queries(), ids=some))
    both: dict[str, Any] = {"ids": some, "where": {"even": True}}
    assert_same(pages.search(queries(), **both, prefetch=3), index.search(queries(), **both))
    assert [len(hits) for hits in pages.search(queries(), ids=[])] == [0] * 4
    with pytest.raises(glie.IdError, match=r"page 'nope' is not in"):
        pages.search(queries(), ids=[some[0], "nope"])
    assert pages.search([]) == []


def test_the_filter_of_the_engine_itself(stored: tuple[glie.Index, Collection]) -> None:
    index, pages = stored
    native: Any
    match type(pages.engine).__name__:
        case "Postgres":
            native = "(metadata ->> 'page')::int < 6 OR metadata::text LIKE '%\"page\": 9,%'"
        case "LanceDB":
            native = "json_get_int(metadata, 'page') < 6 OR json_get_int(metadata, 'page') = 9"
        case "QdrantEdge":
            import qdrant_edge as edge

            below = edge.FieldCondition(key="metadata.page", range=edge.RangeFloat(lt=6))
            nine = edge.FieldCondition(key="metadata.page", match=edge.MatchValue(9))
            native = edge.Filter(should=[below, nine])
        case _:
            from qdrant_client import models

            below = models.FieldCondition(key="metadata.page", range=models.Range(lt=6))
            nine = models.FieldCondition(key="metadata.page", match=models.MatchValue(value=9))
            native = models.Filter(should=[below, nine])
    wanted = [*range(6), 9]
    for prefetch in (None, COUNT):
        found = pages.search(queries(), filter=native, prefetch=prefetch)
        assert_same(found, index.search(queries(), where={"page": wanted}))
        both = pages.search(queries(), filter=native, where={"even": True}, prefetch=prefetch)
        assert_same(both, index.search(queries(), where={"page": [0, 2, 4]}))


def test_upsert_and_delete(engine: Engine, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    first, second, *_ = index.ids
    new = glie.Pages([*make_arrays(1, seed=5), *make_arrays(1, seed=6)], ids=[first, "new"])
    index.add(new, [{"page": -1}, {"page": -2}], replacing=[first])
    pages.upsert(new, [{"page": -1}, {"page": -2}])
    assert len(pages) == COUNT + 1
    assert_same(pages.search(queries()), index.search(queries()))
    assert pages.delete([second, "new"]) == 2
    index.delete([second, "new"])
    assert len(pages) == COUNT - 1
    assert_same(pages.search(queries(), top=COUNT), index.search(queries(), top=COUNT))
    with pytest.raises(glie.IdError, match=r"page 'nope' is not in"):
        pages.delete([first, "nope"])
    assert len(pages) == COUNT - 1


def test_a_document_is_replaced(engine: Engine, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    old = [page_id for page_id, metadata in index.records() if metadata["document"] == "1.pdf"]
    new = glie.Pages(make_arrays(2, seed=5), ids=[old[0], "new"])
    metadata = [{"document": "1.pdf", "page": page} for page in (1, 2)]
    with pytest.raises(glie.IdError, match=r"page 'nope' is not in"):
        pages.upsert(new, metadata, replacing=[*old, "nope"])
    assert_same(pages.search(queries()), index.search(queries()))
    index.add(new, metadata, replacing=old)
    pages.upsert(new, metadata, replacing=old)
    assert len(pages) == len(index) == COUNT - len(old) + 2
    assert_same(pages.search(queries(), top=COUNT), index.search(queries(), top=COUNT))


def test_another_layout_is_refused(engine: Engine, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    other = COMPACT if pages.layout == MULTIVECTOR else MULTIVECTOR
    said = f"its pages are stored as {pages.layout}, not {other}; choose another name"
    with pytest.raises(glie.EngineError, match=said):
        engines.export(index, engine, settings={"layout": other})
    with pytest.raises(glie.InputError, match="layout: expected compact or multivector, found 'x'"):
        engines.export(index, engine, layout="x")


def test_what_was_stored_is_there_later(connect: Connect, index: glie.Index) -> None:
    engine = connect()
    engines.export(index, engine)
    if ":memory:" in engine.place:
        again = engine
    else:
        engine.close()
        again = connect()
    with Collection.open(again) as pages:
        assert pages.codec.same_as(index.codec)
        assert_same(pages.search(queries()), index.search(queries()))


def test_an_interrupted_export_goes_on(
    engine: Engine, index: glie.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PAGES_PER_STEP", 12)
    seen: list[int] = []

    def stop(step: Progress) -> None:
        seen.append(step.done)
        if step.done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.export(index, engine, progress=stop)
    assert seen == [12, 24]
    assert engine.count() == 24
    pages, report = engines.export(index, engine)
    assert (report.pages_uploaded, report.pages_unchanged) == (COUNT - 24, 24)
    assert_same(pages.search(queries()), index.search(queries()))
    assert engines.export(index, engine)[1].pages_uploaded == 0


def test_a_creation_that_was_interrupted_goes_on(engine: Engine, index: glie.Index) -> None:
    engine.create(16, collection.LAYOUT, {})
    with pytest.raises(glie.EngineError, match="not made by glie"):
        Collection.open(engine)
    pages, _ = engines.export(index, engine)
    assert_same(pages.search(queries()), index.search(queries()))


def test_an_export_brings_what_has_changed(engine: Engine, index: glie.Index) -> None:
    engines.export(index, engine)
    first, second, third, *_ = index.ids
    page = glie.Pages(make_arrays(1, seed=7), ids=[first])
    index.add(page, [{"page": 0}], replacing=[first])
    code, metadata = next(index.stored())
    at = list(code.ids).index(second)
    index.delete([second, third])
    pages, report = engines.export(index, engine)
    assert (report.pages_uploaded, report.pages_unchanged) == (1, COUNT - 3)
    assert (report.pages_deleted, len(pages)) == (0, COUNT)
    pages.upsert(code.take(np.array([at])), [{**metadata[at], "changed": True}])
    pages, report = engines.export(index, engine, prune=True)
    assert (report.pages_uploaded, report.pages_deleted, len(pages)) == (0, 2, COUNT - 2)
    assert_same(pages.search(queries()), index.search(queries()))


def test_metadata_alone_is_a_change(engine: Engine, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    codes, metadata = next(index.stored())
    pages.upsert(codes.take(np.array([5])), [{**metadata[5], "page": "five"}])
    assert len(pages.search(queries(), where={"page": "five"})[0]) == 1
    assert engines.export(index, engine)[1].pages_uploaded == 1
    assert len(pages.search(queries(), where={"page": "five"})[0]) == 0


def test_pages_of_something_else_are_refused(
    connect: Connect, index: glie.Index, tmp_path: Path
) -> None:
    engine = connect()
    engines.export(index, engine)
    wide = glie.Index.create(tmp_path / "wide.glie", glie.Codec(k=4))
    wide.add(glie.Pages(make_arrays(3, dim=32)))
    with pytest.raises(glie.EngineError, match="vectors of 16 numbers, not 32; choose another"):
        engines.export(wide, engine)
    other = make_index(tmp_path / "other", glie.Codec(k=5))
    with pytest.raises(glie.EngineError, match="codes of another codec"):
        engines.export(other, engine)
    named = make_index(tmp_path / "named", encoder={"name": "e", "revision": "1"})
    with pytest.raises(glie.EngineError, match="encoder that was not named, not encoder 'e'"):
        engines.export(named, engine)
    if ":memory:" not in engine.place:
        engine.close()
    second = connect("second")
    pages, _ = engines.export(named, second)
    assert pages.encoder == EncoderId("e", "1")
    newer = make_index(tmp_path / "newer", encoder={"name": "e", "revision": "2"})
    with pytest.raises(glie.EngineError, match=r"revision 1\), not encoder 'e' \(revision 2\)"):
        engines.export(newer, second)
    with pytest.raises(glie.VectorError, match="8 numbers"):
        pages.search(make_arrays(1, dim=8))
    with pytest.raises(glie.InputError, match="4 x 16 in int2"):
        pages.upsert(glie.Codec(k=4, dtype="int2").compress(glie.Pages(make_arrays(1))))
    with pytest.raises(glie.InputError, match="not JSON"):
        pages.upsert(glie.Pages(make_arrays(1)), [{"a": float("nan")}])
    with pytest.raises(glie.InputError, match="does not fit in the 64 bits"):
        pages.upsert(glie.Pages(make_arrays(1)), [{"a": [{"b": 2**63}]}])
    assert len(pages) == COUNT
    empty = glie.Index.create(tmp_path / "empty.glie")
    with pytest.raises(glie.InputError, match="nothing to export"):
        engines.export(empty, second)


def test_what_is_not_there(engine: Engine) -> None:
    with pytest.raises(glie.EngineError, match="not there; `glie export` makes it"):
        Collection.open(engine)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top": 0}, "top: expected a whole number of at least 1"),
        ({"shortlist": -1}, "shortlist"),
        ({"prefetch": 0}, "prefetch"),
        ({"exact": 2}, "exact"),
        ({"where": "a"}, "where: expected a dict"),
        ({"ids": "a"}, "single string"),
    ],
)
def test_searches_that_mean_nothing(
    options: dict[str, Any], said: str, stored: tuple[glie.Index, Collection]
) -> None:
    with pytest.raises(glie.InputError, match=said):
        stored[1].search(queries(), **options)


def test_unknown_engines_and_names(tmp_path: Path) -> None:
    with pytest.raises(
        glie.InputError, match="expected one of qdrant, qdrant-edge, lancedb, postgres"
    ):
        engines.connect("pinecone", tmp_path, "x")
    with pytest.raises(glie.InputError, match="expected a name"):
        engines.connect("lancedb", tmp_path, " ")
