"""GLIE inside mteb, on small tasks of ViDoRe's kind that lie on disk: pages as pictures, questions
as text, two languages over one corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import ir_measures
import mteb
import numpy as np
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta, SearchProtocol
from PIL import Image

import glie
from glie.identity import EncoderId
from glie.integrations.mteb import GlieSearch, descending
from tests.conftest import Floats, unit
from tests.encoders.test_encoders import WORDS, tiny  # noqa: F401

COLOURS = ("red", "green", "blue", "cyan", "teal", "plum", "gold", "navy", "pink", "grey")
DIM = 16
PAGES, CELLS, SIDE = 40, 12, 8


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is fetched, and what is loaded is kept in a folder of the test's own."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


class Painted:
    """A visual late-interaction model in the manner of mteb's ColPali: a vector a cell of the page,
    by its colour and a little by its place; a vector a word of a question. What it gives is a
    padded batch."""

    mteb_model_meta = ModelMeta.create_empty(
        overwrites={"name": "tests/painted", "revision": "1", "modalities": ["image", "text"]}
    )

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.colours = unit(rng.normal(size=(len(COLOURS), DIM)))
        self.places = 0.4 * rng.normal(size=(CELLS, DIM))
        self.encoded: list[str] = []  # a line a batch of pages

    def page(self, image: Any) -> Floats:
        cells = np.asarray(image.convert("L"))[SIDE // 2, SIDE // 2 :: SIDE] // 20
        cells = cells[cells < len(COLOURS)]  # the rest is white
        return unit(self.colours[cells] + self.places[: len(cells)])

    def question(self, text: str) -> Floats:
        return self.colours[[COLOURS.index(word) for word in text.split()]]

    def encode(self, inputs: Any, *, prompt_type: Any, hf_subset: str, **_: Any) -> Any:
        import torch

        arrays: list[Floats] = []
        for batch in inputs:
            if prompt_type == "query":
                arrays += [self.question(text) for text in batch["text"]]
            else:
                self.encoded += [hf_subset] * len(batch["image"])
                arrays += [self.page(image) for image in batch["image"]]
        tensors = [torch.from_numpy(array) for array in arrays]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    def similarity(self, one: Any, other: Any) -> Any:
        raise AssertionError("scores are glie's")

    def similarity_pairwise(self, one: Any, other: Any) -> Any:
        raise AssertionError("scores are glie's")


class Repository:
    """A set in a folder, as the Hub has those of ViDoRe v3: tables, and a card that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.configs = folder, ""
        folder.mkdir()

    def add(self, config: str, rows: list[dict[str, Any]], **features: Any) -> None:
        table = datasets.Dataset.from_list(rows)
        for name, feature in features.items():
            table = table.cast_column(name, feature)
        table.to_parquet(self.folder / f"{config}.parquet")
        self.configs += (
            f"- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}.parquet\n"
        )
        (self.folder / "README.md").write_text(f"---\nconfigs:\n{self.configs}---\n")

    def task(self, category: str, languages: Any, **more: Any) -> AbsTaskRetrieval:
        class Task(AbsTaskRetrieval):  # type: ignore[misc]  # mypy does not follow mteb
            metadata = TaskMetadata(
                name="PaintedRetrieval",
                description="Pages of colours.",
                dataset={"path": str(self.folder), "revision": "1"},
                type="DocumentUnderstanding" if "i" in category else "Retrieval",
                category=category,
                eval_splits=["test"],
                eval_langs=languages,
                main_score="ndcg_at_5",
                modalities=["text", "image"] if "i" in category else ["text"],
                **more,
            )

        return Task()


def painted_pages() -> dict[str, Image.Image]:
    """Strips of cells of one colour each; some pages are shorter, and end in white."""
    rng = np.random.default_rng(1)
    pages = {}
    for page in range(PAGES):
        cells = np.full(CELLS, 255, np.uint8)
        used = int(rng.integers(6, CELLS + 1))
        cells[:used] = 20 * rng.integers(len(COLOURS), size=used) + 5
        strip = np.repeat(np.repeat(cells, SIDE)[None], SIDE, axis=0)
        pages[f"page-{page}"] = Image.fromarray(strip)
    return pages


def painted_questions(language: str) -> dict[str, str]:
    rng = np.random.default_rng(len(language))
    return {
        f"{language}-{i}": " ".join(rng.choice(COLOURS, size=3, replace=False)) for i in range(15)
    }


def judged(model: Painted, questions: dict[str, str]) -> dict[str, dict[str, int]]:
    """The three pages that all vectors rank first answer a question."""
    pages = {name: model.page(image) for name, image in painted_pages().items()}
    found: dict[str, dict[str, int]] = {}
    for name, text in questions.items():
        asked = model.question(text)
        scores = {page: float((asked @ v.T).max(axis=1).sum()) for page, v in pages.items()}
        best = sorted(scores, key=lambda page: -scores[page])[:3]
        found[name] = dict(zip(best, (3, 2, 1), strict=True))
    return found


@pytest.fixture
def pictured(tmp_path: Path) -> Any:
    made = Repository(tmp_path / "pictured")
    for language in ("english", "french"):
        questions = painted_questions(language)
        made.add(
            f"{language}-corpus",
            [{"id": name, "image": image} for name, image in painted_pages().items()],
            image=datasets.Image(),
        )
        made.add(f"{language}-queries", [{"id": n, "text": t} for n, t in questions.items()])
        made.add(
            f"{language}-qrels",
            [
                {"query-id": query, "corpus-id": page, "score": grade}
                for query, pages in judged(Painted(), questions).items()
                for page, grade in pages.items()
            ],
        )
    return made.task("t2i", {"english": ["eng-Latn"], "french": ["fra-Latn"]})


def ndcg(index: glie.Index, model: Painted, language: str, shortlist: int | None = None) -> float:
    """What glie's own ranking is worth, by ir-measures."""
    questions = painted_questions(language)
    hits = index.search([model.question(t) for t in questions.values()], 40, shortlist=shortlist)
    run = [
        ir_measures.ScoredDoc(name, page, -rank)
        for name, found in zip(questions, hits, strict=True)
        for rank, page in enumerate(found.ids)
    ]
    graded = judged(model, questions)
    qrels = [ir_measures.Qrel(q, p, g) for q, pages in graded.items() for p, g in pages.items()]
    return float(
        ir_measures.calc_aggregate([ir_measures.nDCG @ 5], qrels, run)[ir_measures.nDCG @ 5]
    )


def asked_of(task: Any) -> dict[str, Any]:
    """What mteb says beside corpus and questions."""
    about = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "english"}
    return {**about, "encode_kwargs": {}, "num_proc": None}


def scores_of(result: Any) -> dict[str, float]:
    return {row["hf_subset"]: row["ndcg_at_5"] for row in result.task_results[0].scores["test"]}


@pytest.mark.parametrize(
    ("codec", "settings"),
    [
        (glie.Codec(k=2), {"k": 2, "dtype": "bf16"}),
        (glie.Codec(bytes_per_page=150), {"bytes_per_page": 150}),
    ],
)
def test_scores_are_those_of_glie(
    pictured: Any, tmp_path: Path, codec: glie.Codec, settings: dict[str, Any]
) -> None:
    painted = Painted()
    model = GlieSearch(painted, codec, folder=tmp_path / "indexes", shortlist=10)
    assert isinstance(model, SearchProtocol)
    found = scores_of(mteb.evaluate(model, pictured, cache=None, show_progress_bar=False))

    index = glie.Index.create(tmp_path / "own.glie", codec)
    pages = painted_pages()
    index.add(glie.Pages([painted.page(image) for image in pages.values()], list(pages)))
    own = {language: ndcg(index, painted, language, shortlist=10) for language in found}
    assert set(found) == {"english", "french"}
    assert found == pytest.approx(own, abs=1e-5)
    assert min(own.values()) > 0.2
    assert max(own.values()) < 1  # a budget that costs something, so that rankings do differ

    meta = model.mteb_model_meta
    assert (meta.name, meta.revision, meta.model_type) == (
        "tests/painted",
        "1",
        ["late-interaction"],
    )
    assert meta.similarity_fn_name == "MaxSim"
    assert meta.experiment_kwargs is not None
    assert settings.items() <= meta.experiment_kwargs.items()
    assert meta.experiment_kwargs["shortlist"] == 10
    assert painted.mteb_model_meta.experiment_kwargs is None  # the model's own is as it was


def test_a_corpus_is_encoded_once(pictured: Any, tmp_path: Path) -> None:
    painted, folder = Painted(), tmp_path / "indexes"
    first = GlieSearch(painted, glie.Codec(k=4), folder=folder)
    results = mteb.evaluate(first, pictured, cache=None, show_progress_bar=False)
    assert painted.encoded == ["english"] * PAGES  # the same pages serve the second language
    assert [path.suffix for path in folder.iterdir()] == [".glie"]

    again = GlieSearch(painted, glie.Codec(k=4), folder=folder)
    same = mteb.evaluate(again, pictured, cache=None, show_progress_bar=False)
    assert scores_of(same) == scores_of(results)
    assert len(painted.encoded) == PAGES
    other = GlieSearch(painted, glie.Codec(k=2), folder=folder)
    mteb.evaluate(other, pictured, cache=None, show_progress_bar=False)
    assert len(painted.encoded) == 2 * PAGES
    assert len(list(folder.iterdir())) == 2


def test_other_pages_are_another_index(pictured: Any, tmp_path: Path) -> None:
    pictured.load_data()
    corpus, how = pictured.dataset["english"]["test"]["corpus"], asked_of(pictured)
    model = GlieSearch(Painted(), glie.Codec(k=4), folder=tmp_path / "indexes")
    for size in (PAGES, 10, PAGES):
        model.index(corpus.select(range(size)), **how)
        found = model.search(pictured.dataset["english"]["test"]["queries"], top_k=PAGES, **how)
        assert {len(pages) for pages in found.values()} == {size}
    assert len(list((tmp_path / "indexes").iterdir())) == 2


class Unnamed(Painted):
    """As mteb sees a checkpoint of one's own: by no name and no revision."""

    mteb_model_meta = ModelMeta.create_empty(overwrites={"modalities": ["image", "text"]})


def test_models_that_mteb_cannot_tell_apart(pictured: Any, tmp_path: Path) -> None:
    for _ in range(2):
        model = Unnamed()
        search = GlieSearch(model, glie.Codec(k=4), folder=tmp_path / "indexes")
        mteb.evaluate(search, pictured, cache=None, show_progress_bar=False)
        assert len(model.encoded) == PAGES  # once, for both languages
    assert len(list((tmp_path / "indexes").iterdir())) == 2


def test_results_of_budgets_are_kept_apart(pictured: Any, tmp_path: Path) -> None:
    cache = mteb.ResultCache(tmp_path / "results")
    for k in (1, 4):
        model = GlieSearch(Painted(), glie.Codec(k=k))
        mteb.evaluate(model, pictured, cache=cache, show_progress_bar=False)
    kept = list((tmp_path / "results").rglob("PaintedRetrieval.json"))
    scores = [json.loads(path.read_text())["scores"]["test"][0]["ndcg_at_5"] for path in kept]
    assert len(set(scores)) == 2


def test_an_interrupted_corpus_is_encoded_again(
    pictured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = Painted()
    page = Painted.page

    def stops(self: Painted, image: Any) -> Floats:
        raise KeyboardInterrupt

    model = GlieSearch(painted, glie.Codec(k=4), folder=tmp_path / "indexes")
    monkeypatch.setattr(Painted, "page", stops)
    with pytest.raises(KeyboardInterrupt):
        mteb.evaluate(model, pictured, cache=None, show_progress_bar=False)
    monkeypatch.setattr(Painted, "page", page)
    found = scores_of(mteb.evaluate(model, pictured, cache=None, show_progress_bar=False))
    fresh = GlieSearch(painted, glie.Codec(k=4))
    assert found == scores_of(mteb.evaluate(fresh, pictured, cache=None, show_progress_bar=False))


TEXTS = {f"page-{i}": " ".join(WORDS[5 + i : 9 + i]) for i in range(len(WORDS) - 9)}
ASKED = {f"query-{i}": " ".join(WORDS[6 + i : 8 + i]) for i in range(0, len(WORDS) - 10, 2)}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Pages and questions of text, in one language; one page has nothing on it."""
    made = Repository(tmp_path / "written")
    made.add("corpus", [{"id": n, "text": t} for n, t in {**TEXTS, "blank": " "}.items()])
    made.add("queries", [{"id": n, "text": t} for n, t in ASKED.items()])
    relevant = [(f"query-{i}", f"page-{i}") for i in range(0, len(WORDS) - 10, 2)]
    made.add("qrels", [{"query-id": q, "corpus-id": p, "score": 1} for q, p in relevant])
    return made.task("t2t", ["eng-Latn"])


def test_a_sentence_transformers_model(written: Any, tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    """Ragged batches, of a model whose encode mteb hides."""
    from sentence_transformers import MultiVectorEncoder

    encoder = MultiVectorEncoder(str(tiny), device="cpu")
    model = GlieSearch(encoder, glie.Codec(k=64))  # more than a page has: nothing is lost
    found = scores_of(mteb.evaluate(model, written, cache=None, show_progress_bar=False))
    whole = mteb.evaluate(encoder, written, cache=None, show_progress_bar=False)
    assert found == pytest.approx(scores_of(whole), abs=1e-5)


class ByWord:
    """An encoder of glie: a vector a word, those of pages a little off."""

    name, revision = "by-word", "1"

    def __init__(self) -> None:
        self.words = dict(
            zip(WORDS, unit(np.random.default_rng(0).normal(size=(len(WORDS), DIM))), strict=True)
        )

    def encode_queries(self, texts: Any) -> list[Floats]:
        return [
            np.array([self.words.get(word, self.words[WORDS[0]]) for word in text.split()])
            for text in texts
        ]

    def encode_pages(self, pages: Any) -> list[Floats]:
        assert all(isinstance(page, str) and page.strip() for page in pages)
        return [unit(vectors + 0.05) for vectors in self.encode_queries(pages)]


def test_an_encoder_of_glie(written: Any, tmp_path: Path) -> None:
    model = GlieSearch(ByWord(), bytes_per_page=300, folder=tmp_path / "indexes")
    meta = model.mteb_model_meta
    assert (meta.name, meta.revision, meta.embed_dim) == ("glie/by-word", "1", DIM)
    found = scores_of(mteb.evaluate(model, written, cache=None, show_progress_bar=False))
    assert found["default"] > 0.5  # two words stand on three pages each
    (kept,) = (tmp_path / "indexes").iterdir()
    index = glie.Index.open(kept)
    assert index.ids == list(TEXTS)  # a page without text is not there to be found
    assert index.encoder == EncoderId("by-word", "1")


def test_reranking_goes_over_the_given_pages(pictured: Any, tmp_path: Path) -> None:
    pictured.load_data()
    data = pictured.dataset["english"]["test"]
    how = asked_of(pictured)
    model = GlieSearch(Painted(), glie.Codec(k=4))
    with pytest.raises(glie.InputError, match="no corpus is indexed yet"):
        model.search(data["queries"], top_k=3, **how)
    model.index(data["corpus"], **how)
    all_of_them = model.search(data["queries"], top_k=PAGES, **how)
    given = {"english-0": ["page-7", "page-3", "gone"], "english-1": []}
    some = model.search(data["queries"], top_k=5, top_ranked=given, **how)
    assert some["english-0"] == {
        page: score
        for page, score in all_of_them["english-0"].items()
        if page in ("page-3", "page-7")
    }
    assert some["english-1"] == some["english-2"] == {}


def test_of_equal_pages_the_first_is_first(pictured: Any) -> None:
    """Also to mteb, which ranks equal scores by id."""
    strip = next(iter(painted_pages().values()))
    corpus = datasets.Dataset.from_list([{"id": name, "image": strip} for name in ("m", "z", "a")])
    how = asked_of(pictured)
    model = GlieSearch(Painted(), glie.Codec(k=4))
    model.index(corpus, **how)
    asked = datasets.Dataset.from_list([{"id": "q", "text": "red blue"}])
    scores = model.search(asked, top_k=3, **how)["q"]
    assert sorted(scores, key=lambda page: -np.float32(scores[page])) == ["m", "z", "a"]
    assert len(set(map(np.float32, scores.values()))) == 3


class BM25:
    """A model that searches, and encodes nothing."""

    mteb_model_meta = Painted.mteb_model_meta


def test_what_cannot_be_used() -> None:
    with pytest.raises(glie.InputError, match="give one of them"):
        GlieSearch(Painted(), glie.Codec(k=4), bytes_per_page=520)
    with pytest.raises(
        glie.InputError, match=r"expected a model of mteb or its name.*found object"
    ):
        GlieSearch(object())


class Doubled(Painted):
    def encode(self, inputs: Any, **how: Any) -> Any:
        return 2 * super().encode(inputs, **how)


def test_vectors_off_the_sphere(pictured: Any, tmp_path: Path) -> None:
    with pytest.raises(glie.VectorError, match="norm 2, expected 1"):
        mteb.evaluate(GlieSearch(Doubled()), pictured, cache=None, show_progress_bar=False)
    models = GlieSearch(Doubled(), normalize=True), GlieSearch(Painted())
    found = [mteb.evaluate(m, pictured, cache=None, show_progress_bar=False) for m in models]
    assert scores_of(found[0]) == scores_of(found[1])


class OneVector(Painted):
    def encode(self, inputs: Any, **how: Any) -> Any:
        return super().encode(inputs, **how)[:, 0]


def test_a_model_of_one_vector_is_refused(pictured: Any) -> None:
    model = GlieSearch(OneVector(), glie.Codec(k=4))
    with pytest.raises(glie.EncoderError, match="tests/painted: it gives one vector a page"):
        mteb.evaluate(model, pictured, cache=None, show_progress_bar=False)


def test_vidore_by_name() -> None:
    """The names that docs/frameworks.md gives are those of mteb."""
    tasks = {
        name: len(mteb.get_benchmark(name).tasks)
        for name in ("ViDoRe(v1)", "ViDoRe(v2)", "ViDoRe(v3)")
    }
    assert tasks == {"ViDoRe(v1)": 10, "ViDoRe(v2)": 4, "ViDoRe(v3)": 10}


def test_scores_keep_the_order() -> None:
    assert descending([3.0, 2.0, 2.5, 2.0, -1.0]) == sorted(
        descending([3.0, 2.0, 2.5, 2.0, -1.0]), reverse=True
    )
    kept = descending([3.0, 2.0, 2.5, 2.0, -1.0])
    assert kept[:2] == [3.0, 2.0]
    assert kept[-1] == -1.0
    assert len({np.float32(score) for score in kept}) == 5
    assert kept == pytest.approx([3, 2, 2, 2, -1], abs=1e-5)
