"""Experiments: what is measured is right, what is finished is kept, what has changed is not."""

from __future__ import annotations

import dataclasses
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.codec.readout.codebook import Codebook
from glie.encoders import Encoder
from glie.evaluation import Dataset, Encoded, comparison, encode, encoding
from glie.evaluation import experiment as module
from glie.evaluation import fits as fits_module
from glie.evaluation.baselines import pooled
from glie.evaluation.comparison import Comparison
from glie.evaluation.experiment import run
from glie.evaluation.fits import Codecs, facts, joined
from glie.evaluation.methods import ADAPTED, FREE, SHIPPED, TITLES, chosen_methods
from glie.evaluation.plan import MORE, Plan
from glie.evaluation.report import write_report
from glie.evaluation.store import Result, Setting, Store
from glie.evaluation.tables import Results, word_shortlists
from glie.identity import EncoderId
from glie.index.memory import CodesInMemory, search_oracle
from glie.measures import ndcg_at_5
from glie.training.recipe import DEFAULT
from tests.conftest import unit

QUICK = dataclasses.replace(
    DEFAULT, epochs=1, batch=4, code_batch=8, negatives=3, pool=8, width=16, measurements=1
)
ALL = list(TITLES)
PAGES = 70


class Topics:
    """An encoder of numbers: a page "3 5" is about topics 3 and 5, and so is a question."""

    name, revision = "topics", "1"

    def encode_pages(self, pages: Any) -> Any:
        return [self._vectors(text, 12) for text in pages]

    def encode_queries(self, texts: Any) -> Any:
        return [self._vectors(text, 2) for text in texts]

    def _vectors(self, text: str, each: int) -> Any:
        rng = np.random.default_rng(zlib.crc32(text.encode()) + each)
        topics = np.eye(16)[[int(word) for word in text.split()]].repeat(each, axis=0)
        return unit(topics + 0.25 * rng.normal(size=topics.shape))


TOPICS = Topics()


def make_set(name: str, seed: int = 0, pages: int = PAGES, encoder: Encoder = TOPICS) -> Encoded:
    rng = np.random.default_rng(seed)
    about = [rng.choice(16, 3, replace=False) for _ in range(pages)]
    texts = {f"p{i}": " ".join(map(str, topics)) for i, topics in enumerate(about)}
    queries = {f"q{i}": f"{topics[0]} {topics[2]}" for i, topics in enumerate(about)}
    relevant = {f"q{i}": {f"p{i}": 1 + i % 2} for i in range(pages)}
    with pytest.MonkeyPatch.context() as patch:  # in several blocks, as a large set is
        patch.setattr(encoding, "SHARD_PAGES", 16)
        patch.setattr(encoding, "TEXTS_PER_BATCH", 8)
        found = encode(Dataset(name, texts, queries, relevant), encoder)
    assert len(found.shard_pages) > 2
    return found


def plan(methods: list[str] = ALL, **changes: Any) -> Plan:
    return Plan(**{"methods": methods, "budgets": [1, 2], "recipe": QUICK, **changes})


def everything(
    sets: list[Encoded], plan: Plan, store: Store, fit_on: list[Encoded] | None = None
) -> list[Result]:
    return list(run(sets, plan, Codecs(plan, store, fit_on=fit_on, sets=sets), store))


@pytest.fixture(scope="module")
def sets() -> list[Encoded]:
    return [make_set("one"), make_set("two", 1)]


@pytest.fixture(scope="module")
def results(sets: list[Encoded], tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    store = Store(tmp_path_factory.mktemp("results"), trec=True)
    return everything(sets, plan(more=MORE), store)


def test_every_method_is_measured_at_every_budget(results: list[Result]) -> None:
    found = {(r.setting.dataset, r.setting.method, r.setting.k) for r in results}
    for dataset in ("one", "two"):
        for method in set(TITLES) - {SHIPPED}:
            for k in (1, 2) if method != "uncompressed" else (None,):
                assert (dataset, method, k) in found, (dataset, method, k)
    for result in results:
        assert 0 <= result.ndcg <= 1
        assert len(result.each) == PAGES
        assert result.ndcg == pytest.approx(np.mean(result.each), abs=1e-6)
        assert result.ms_per_query > 0
        k, method = result.setting.k, result.setting.method
        whole = k * (2 * 16 + 4) if k else 36 * 32
        if method in ("quantised", "plaid"):
            assert 0.8 * whole < result.bytes_per_page <= whole
        elif method != ADAPTED:  # on so few pages even the smallest codebook is too large
            assert result.bytes_per_page == whole
    (variants,) = {tuple(sorted({r.setting.variant for r in results} - {""}))}
    assert variants == (
        *("100% of pages", "128x1", "25% of pages", "256x1"),
        *("50% of pages", "512x1", "512x3", "shortlist"),
    )
    listed = [r.setting for r in results if r.setting.variant == "shortlist"]
    assert {(s.method, s.shortlist) for s in listed if s.dataset == "one"} == {
        (method, length) for method in ("glie", "oracle") for length in module.SHORTLISTS
    }


def test_a_method_scores_what_its_definition_says(
    sets: list[Encoded], results: list[Result]
) -> None:
    """Plain loops over codes as they are stored, and over all vectors."""
    one, pages = sets[0], sets[0].pages()

    def ndcg(vectors: list[Any]) -> float:
        total = 0.0
        for query, asked in zip(one.queries.ids, one.queries, strict=True):
            scores = [(asked @ page.T).max(axis=1).sum() for page in vectors]
            order = np.argsort(-np.array(scores), kind="stable")[:5]
            (relevant,) = one.relevant[query]
            ranks = [place for place, row in enumerate(order) if one.page_ids[row] == relevant]
            total += 1 / np.log2(2 + ranks[0]) if ranks else 0
        return total / len(one.queries)

    by_name = {r.setting: r for r in results}
    assert by_name[Setting("one", "uncompressed")].ndcg == pytest.approx(ndcg(list(pages)))
    for method in FREE:
        codes = method.compress(pages, 2 * 36 if method.by_bytes else 2, 0)
        vectors = codes.stored.vectors()
        rows = [v[c > 0] for v, c in zip(vectors, codes.counts, strict=True)]
        assert by_name[Setting("one", method.name, 2)].ndcg == pytest.approx(ndcg(rows))


def test_the_oracle_sees_the_true_vectors(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a shortlist as long as the set, it is the uncompressed ranking."""
    monkeypatch.setattr(module, "SHORTLIST", PAGES)
    wide = plan(["oracle", "uncompressed"])
    found = {r.setting.method: r for r in everything(sets, wide, Store(None)) if r.setting.k != 1}
    assert found["oracle"].each == found["uncompressed"].each


def test_reading_true_vectors_back_is_not_part_of_the_search(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still but for a second each time that pages are read."""
    pages, queries = sets[0].pages(), sets[0].queries
    codes = glie.Codec(2).compress(pages)
    now, reads = 0.0, 0

    def read(listed: glie.Codes) -> glie.Pages:
        nonlocal now, reads
        now, reads = now + 1, reads + 1
        return sets[0].take([pages.ids.index(page) for page in listed.ids])

    monkeypatch.setattr("time.perf_counter", lambda: now)
    found = search_oracle(queries, codes, read, 5, 10)
    assert reads == 1
    assert found.cost.seconds == 0


def test_each_set_is_measured_by_a_codec_of_the_others(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(pages: glie.Pages, *rest: Any, **settings: Any) -> glie.Codec:
        seen.append({page.split("/")[0] for page in pages.ids})
        return glie.fit(pages, *rest, **settings)

    monkeypatch.setattr(fits_module, "fit", spy)
    everything(sets, plan(["glie"]), Store(None))
    assert seen == [{"0:two"}, {"0:one"}]


def test_what_is_finished_is_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = plan(["raw-kmeans", "glie-stage1", "glie", "uncompressed"])
    first = Store(tmp_path)
    measured = everything(sets, few, first)
    assert (first.made, first.kept) == (len(measured), 0)

    def no_fit(*given: Any, **settings: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(fits_module, "fit", no_fit)
    again = Store(tmp_path)
    assert everything(sets, few, again) == measured
    assert (again.made, again.kept) == (0, len(measured))

    # what was cut off is measured again, and so is what was measured on other vectors
    file = tmp_path / "runs" / "one" / "raw-kmeans-k1-seed0.json"
    file.write_text(file.read_text()[:50])
    third = Store(tmp_path)
    everything(sets, few, third)
    assert (third.made, third.kept) == (1, len(measured) - 1)
    other = [make_set("one", 5), sets[1]]
    fourth = Store(tmp_path)
    free = plan(["raw-kmeans"])
    list(run(other, free, None, fourth))
    assert (fourth.made, fourth.kept) == (2, 2)


def test_the_geometry_is_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])
    asked = plan(["glie-free"], more=["geometry"])
    first = Comparison(["one", "two"], asked, to=tmp_path)
    measured = first.measure(sets)
    assert [corpus.name for corpus in measured.corpora] == ["one", "two"]
    assert (first.store.made, first.store.kept) == (6, 0)

    def again(*given: Any, **settings: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(comparison, "measure_geometry", again)
    second = Comparison(["one", "two"], asked, to=tmp_path)
    assert second.measure(sets).corpora == measured.corpora
    assert (second.store.made, second.store.kept) == (0, 6)


def test_an_interrupted_run_goes_on(sets: list[Encoded], tmp_path: Path) -> None:
    few = plan(["raw-kmeans", "glie-free"])
    done = list(itertools.islice(run(sets, few, None, Store(tmp_path)), 3))
    store = Store(tmp_path)
    whole = list(run(sets, few, None, store))
    assert (store.kept, store.made) == (3, 5)
    assert whole[:3] == done


def test_half_a_fit_is_not_kept(
    sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **settings: Any) -> glie.Codec:
        codec = glie.fit(*given, **settings)
        assert codec.fitted is not None
        notes = {**codec.fitted.notes, "interrupted": True}
        return glie.Codec(
            config=codec.config, fitted=dataclasses.replace(codec.fitted, notes=notes)
        )

    monkeypatch.setattr(fits_module, "fit", interrupted)
    for folder in (tmp_path, None):
        with pytest.raises(KeyboardInterrupt):
            everything(sets, plan(["glie"]), Store(folder))
    assert not list(tmp_path.rglob("config.json"))


def test_three_seeds_are_three_fits_and_their_mean(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = []

    def spy(*given: Any, **settings: Any) -> glie.Codec:
        fits.append(settings["seed"])
        return glie.fit(*given, **settings)

    monkeypatch.setattr(fits_module, "fit", spy)
    seeded = plan(["raw-kmeans", "token-pooling", "glie"], seeds=[0, 1, 2])
    found = Results(everything(sets, seeded, Store(None), fit_on=[sets[0]]))
    assert fits == [0, 1, 2]  # once each, not once a set
    assert [len(found.of("one", m, 2)) for m in ("raw-kmeans", "token-pooling", "glie")] == [
        3,
        1,
        3,
    ]
    scores = [
        np.mean([r.ndcg for d in ("one", "two") for r in found.of(d, "glie", 2)[s : s + 1]])
        for s in range(3)
    ]
    assert found.macro("glie", 2).mean == pytest.approx(np.mean(scores))


def test_run_files(sets: list[Encoded], tmp_path: Path) -> None:
    list(run(sets[:1], plan(["glie-free"]), None, Store(tmp_path, trec=True)))
    lines = (tmp_path / "trec" / "one" / "glie-free-k2-seed0.run").read_text().splitlines()
    assert len(lines) == PAGES * PAGES
    query, q0, page, rank, score, name = lines[0].split()
    assert (query, q0, rank, name) == ("q0", "Q0", "1", "glie-free-k2-seed0")
    assert page in sets[0].page_ids
    assert float(score) > float(lines[1].split()[4])
    # asked for later, they are made then
    list(run(sets[1:], plan(["glie-free"]), None, Store(tmp_path)))
    assert not (tmp_path / "trec" / "two").exists()
    list(run(sets[1:], plan(["glie-free"]), None, Store(tmp_path, trec=True)))
    assert len(list((tmp_path / "trec" / "two").iterdir())) == 2


def test_what_a_codec_was_fitted_on_is_said(sets: list[Encoded], results: list[Result]) -> None:
    codecs = [r.codec for r in results if r.setting.method == "glie"]
    assert all(codec and codec["parameters"] > 1000 for codec in codecs)
    quarter = next(r for r in results if r.setting.variant == "25% of pages")
    assert quarter.codec is not None
    assert quarter.codec["pages"] == 18
    codec = glie.fit(*joined(sets), k=2, recipe=QUICK)
    assert facts(codec)["pages"] == 2 * PAGES


def test_methods_are_asked_for_by_name() -> None:
    assert chosen_methods(None) == ["raw-kmeans", "glie-free", "uncompressed"]
    assert chosen_methods(None, codec=True)[-2:] == ["glie", "uncompressed"]
    assert chosen_methods("all", fits=True) == ALL
    assert chosen_methods("all", codec=True) == [name for name in ALL if name != "plaid"]
    assert not {"glie", "plaid"} & set(chosen_methods("all"))
    with pytest.raises(glie.InputError, match="'best' is unknown; expected all, or some of: raw"):
        chosen_methods("best")
    with pytest.raises(glie.InputError, match="glie need a fitted codec"):
        chosen_methods("glie")
    with pytest.raises(glie.InputError, match="plaid need sets to find centroids on; give --fit"):
        chosen_methods("plaid", codec=True)


def test_sets_that_cannot_be_compared(sets: list[Encoded]) -> None:
    with pytest.raises(glie.DatasetError, match="two sets have the name 'one'"):
        list(run([sets[0], sets[0]], plan(["glie-free"]), None, Store(None)))
    with pytest.raises(glie.InputError, match="give others to fit on"):
        Codecs(plan(), Store(None), sets=sets[:1])
    other = dataclasses.replace(sets[1], encoder=EncoderId("other", "1"))
    with pytest.raises(glie.EncoderError, match="other"):
        list(run([sets[0], other], plan(["glie-free"]), None, Store(None)))
    silent = dataclasses.replace(sets[0], queries=glie.Queries([]))
    with pytest.raises(glie.DatasetError, match="it has no questions"):
        list(run([silent], plan(["glie-free"]), None, Store(None)))


def test_of_uncompressed_vectors_alone(sets: list[Encoded], tmp_path: Path) -> None:
    results = Results(run(sets, plan(["uncompressed"]), None, Store(None)))
    assert results.methods == []
    write_report(tmp_path, results, sets, "glie evaluate")
    assert "| uncompressed |" in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_names_may_be_long(tmp_path: Path) -> None:
    """Ten sets fit on each other: the name of a codec's folder must not grow with theirs."""
    long = [make_set("a" * 120), make_set("b" * 120, 1), make_set("c" * 120, 2)]
    store = Store(tmp_path)
    everything(long, plan(["glie"]), store)
    assert store.made == 6


def test_a_report_stands_alone(sets: list[Encoded], results: list[Result], tmp_path: Path) -> None:
    write_report(tmp_path, Results(results), sets, "glie evaluate one two", ["Zero-shot."])
    written = json.loads((tmp_path / "results.json").read_text())
    assert {row["method"] for row in written["rows"]} == set(ALL) - {SHIPPED}
    assert {"main", "ladder", "projected", "shortlist", "capacity", "data"} <= set(
        written["tables"]
    )
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert 'src="http' not in page
    assert "<script" not in page
    text = (tmp_path / "report.md").read_text()
    for name in ("quality.png", "margin.png", "headroom.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in text
    assert "| method | k = 1 | k = 2 |" in text


# Budgets in bytes: vectors as long as those that the shipped codebook is for, and said to be so.


@pytest.fixture(scope="module")
def long_sets() -> list[Encoded]:
    return [make_set(name, seed, encoder=LongTopics()) for seed, name in enumerate(("one", "two"))]


class LongTopics(Topics):
    """The same topics, said to be of the encoder that has a codebook, in as many dimensions."""

    made_for = Codebook.shipped().encoder or EncoderId("")
    name, revision = made_for.name, made_for.revision or ""

    def _vectors(self, text: str, each: int) -> Any:
        turned = np.linalg.qr(np.random.default_rng(0).normal(size=(128, 16)))[0]
        return super()._vectors(text, each) @ turned.T.astype(np.float32)


IN_BYTES = ["glie-free", "quantised", "plaid", SHIPPED, ADAPTED, "uncompressed"]


def in_bytes(*budgets: int, methods: list[str] = IN_BYTES, **changes: Any) -> Plan:
    return plan(methods, budgets=budgets, in_bytes=True, **changes)


@pytest.fixture(scope="module")
def byte_results(long_sets: list[Encoded]) -> list[Result]:
    return everything(long_sets, in_bytes(300, 1000, more=[]), Store(None))


def test_budgets_in_bytes(byte_results: list[Result]) -> None:
    found = {r.setting.label: r for r in byte_results if r.setting.dataset == "one"}
    free = [found[f"glie-free-{budget}bytes-seed0"] for budget in (300, 1000)]
    assert [(r.setting.k, r.bytes_per_page) for r in free] == [(1, 260), (3, 780)]
    for budget in (300, 1000):
        for name, most in (("quantised", budget), ("plaid", budget), (SHIPPED, budget - 26)):
            listed = "-L200" if name == SHIPPED else ""
            result = found[f"{name}-{budget}bytes{listed}-seed0"]
            assert result.setting.k is None
            assert 0.5 * most < result.bytes_per_page <= most
    assert found["quantised-300bytes-seed0"].bytes_per_page == 300 // 33 * 33


def test_an_adapted_codebook_is_counted(
    long_sets: list[Encoded], byte_results: list[Result]
) -> None:
    codec = glie.Codec(bytes_per_page=1000, adapt=True).adapted(long_sets[0].pages())
    assert codec.codebook is not None
    book = len(codec.codebook.to_bytes())
    codes = CodesInMemory([codec.compress(long_sets[0].pages())]).bytes_per_page
    (result,) = [
        r for r in byte_results if r.setting[:2] == ("one", ADAPTED) and r.setting.bytes == 1000
    ]
    assert result.codec == {"codebook_bytes": book, "pages": PAGES}
    assert result.bytes_per_page == pytest.approx(codes + book / PAGES)


def test_words_are_searched_as_an_index_searches_them(
    long_sets: list[Encoded], byte_results: list[Result], tmp_path: Path
) -> None:
    one = long_sets[0]
    index = glie.Index.create(tmp_path / "x.glie", glie.Codec(bytes_per_page=300, adapt=False))
    index.add(one.pages())
    hits = index.search(one.queries, top=5)
    rows = [np.array([one.page_ids.index(page) for page in found.ids]) for found in hits]
    (result,) = [
        r for r in byte_results if r.setting[:2] == ("one", SHIPPED) and r.setting.bytes == 300
    ]
    assert result.ndcg == pytest.approx(ndcg_at_5(one, rows), abs=1e-6)
    assert result.bytes_per_page == pytest.approx(index.info().code_bytes_per_page, abs=0.5)


def test_budgets_of_vectors_are_bytes_too(long_sets: list[Encoded]) -> None:
    by_k = run(long_sets[:1], plan([SHIPPED, "quantised"], budgets=[2]), None, Store(None))
    by_bytes = run(long_sets[:1], in_bytes(520, methods=[SHIPPED, "quantised"]), None, Store(None))
    for one, other in zip(by_k, by_bytes, strict=True):
        assert (one.each, one.bytes_per_page) == (other.each, other.bytes_per_page)
        assert (one.setting.k, one.setting.budget, other.setting.budget) == (2, 2, 520)


def test_what_was_measured_in_bytes_is_kept(
    long_sets: list[Encoded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Store(tmp_path, trec=True)
    few = in_bytes(520, methods=["quantised", "plaid", SHIPPED, ADAPTED])
    measured = everything(long_sets, few, first)
    lines = (tmp_path / "trec" / "two" / "glie-bytes-520bytes-L200-seed0.run").read_text()
    assert lines.startswith("q0 Q0 ")

    def again(*given: Any, **settings: Any) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr("glie.evaluation.baselines.ResidualCode.fit", again)
    monkeypatch.setattr("glie.Codec.adapted", again)
    second = Store(tmp_path, trec=True)
    assert everything(long_sets, few, second) == measured
    assert (second.made, second.kept) == (0, len(measured))


def test_centroids_are_those_of_the_other_sets(
    long_sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(pages: glie.Pages, bytes_per_page: int) -> glie.Codes:
        seen.append((pages.ids[0].split("/")[0], len(pages), bytes_per_page))
        return pooled(pages, bytes_per_page)

    monkeypatch.setattr(fits_module, "pooled", spy)
    everything(long_sets, in_bytes(300, 520, methods=["plaid"], seeds=[0, 1]), Store(None))
    assert seen == [(name, PAGES, size) for name in ("0:two", "0:one") for size in (300, 520)]


def test_longer_shortlists_of_words(long_sets: list[Encoded]) -> None:
    wide = in_bytes(300, 500, 4000, methods=[SHIPPED], more=["shortlist"])
    found = Results(run(long_sets, wide, None, Store(None)))
    listed = {r.setting for r in found.all if r.setting.variant}
    assert {s.bytes for s in listed} == {500}
    assert {(s.method, s.shortlist) for s in listed if s.dataset == "one"} == {
        (method, length) for method in (SHIPPED, "oracle") for length in module.CODEWORD_SHORTLISTS
    }
    table = word_shortlists(found)
    assert table is not None
    assert table.header == ["method", *(f"L = {length}" for length in (20, 50, 100, 200, 500))]


def test_a_codebook_of_another_encoder(
    sets: list[Encoded], long_sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = plan([SHIPPED, "glie-free"])
    assert {r.setting.method for r in run(sets, both, None, Store(None))} == {"glie-free"}
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])
    (line,) = Comparison(["one", "two"], both).notes(sets)
    assert line == (
        "glie-bytes: left out on 2 sets: the codebook that comes with glie is for encoder "
        "'minilm' at D = 128; glie-bytes-adapted makes one for any"
    )
    by_name |= {one.name: one for one in long_sets}
    (line,) = Comparison(["one"], plan([SHIPPED, ADAPTED])).notes(long_sets[:1])
    assert "made of the pages of each set, never of a question" in line
    with pytest.raises(glie.InputError, match="left out on 2 sets"):
        list(run(sets, plan([SHIPPED]), None, Store(None)))


def test_what_was_fitted_is_said_only_if_it_was(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {one.name: one for one in sets}
    monkeypatch.setattr(comparison, "load", lambda name, **_: by_name[name])

    def notes(methods: list[str], **how: Any) -> list[str]:
        return Comparison(["one"], plan(methods, **how), fit_on=["one", "two"]).notes(sets)

    seen = "Not zero-shot on one: it is one of these."
    assert notes(["glie"]) == ["Fitted on one, two: the codec.", seen]
    assert notes(["plaid"]) == ["Fitted on one, two: the centroids of plaid.", seen]
    both = "Fitted on one, two: the codec and the centroids of plaid."
    assert notes(["glie", "plaid"]) == [both, seen]
    assert notes(["glie-free"], more=["geometry"]) == []
    codec = glie.fit(*joined(sets), k=2, recipe=QUICK)
    given = Comparison(["one"], plan(["glie"]), codec=codec).notes(sets[:1])
    assert given == [f"The codec was given; it was fitted on {2 * PAGES} pages."]
    unused = plan(["glie-free"], more=["geometry"])
    assert Comparison(["one"], unused, codec=codec).notes(sets[:1]) == []


def test_a_codebook_is_made_without_all_pages_in_memory(
    sets: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_pages(encoded: Encoded) -> glie.Pages:
        raise AssertionError("all pages read at once")

    monkeypatch.setattr(Encoded, "pages", all_pages)
    assert len(list(run(sets, plan([ADAPTED]), None, Store(None)))) == 4


def test_budgets_that_hold_nothing(long_sets: list[Encoded]) -> None:
    store = Store(None)
    with pytest.raises(glie.InputError, match="259 bytes hold no vector of 128 numbers in bfloat"):
        list(run(long_sets, in_bytes(520, 259, methods=["glie-free"]), None, store))
    with pytest.raises(glie.InputError, match="bytes_per_page: found 50, at least"):
        list(run(long_sets, in_bytes(520, 50, methods=[SHIPPED]), None, store))
    assert store.made == 0  # found out before anything was measured
    assert len(list(run(long_sets, in_bytes(130, methods=[SHIPPED]), None, store))) == 2


def test_a_report_of_bytes(
    long_sets: list[Encoded], byte_results: list[Result], tmp_path: Path
) -> None:
    write_report(tmp_path, Results(byte_results), long_sets, "glie evaluate one two")
    text = (tmp_path / "report.md").read_text()
    assert "| method | 300 bytes | 1,000 bytes |" in text
    assert "## Projected: bytes of words, adapted" in text
    assert "Santhanam et al. 2022" in text
    assert "never of a question" in text
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {(row["k"], row["budget_bytes"]) for row in rows if row["method"] == "glie-free"} == {
        (1, 300),
        (3, 1000),
    }
