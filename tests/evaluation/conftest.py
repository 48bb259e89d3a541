"""Sets and results that several files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from glie.evaluation import (
    Dataset,
    Encoded,
    experiment,
    load,
)
from glie.evaluation.plan import MORE
from glie.evaluation.store import Result, Store
from tests.documents.test_documents import picture
from tests.evaluation.sets import write_set
from tests.evaluation.test_datasets import png
from tests.evaluation.topics import (
    LongTopics,
    everything,
    in_bytes,
    make_set,
    plan,
)


@pytest.fixture(scope="session")
def sets() -> list[Encoded]:
    return [make_set("one"), make_set("two", 1)]


@pytest.fixture(scope="session")
def results(sets: list[Encoded], tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    store = Store(tmp_path_factory.mktemp("results"), trec=True)
    with pytest.MonkeyPatch.context() as patch:  # the paper's sizes would take a minute
        patch.setattr(experiment, "CAPACITIES", ((16, 1), (16, 3)))
        return everything(sets, plan(more=MORE), store)


@pytest.fixture(scope="session")
def long_sets() -> list[Encoded]:
    return [make_set(name, seed, encoder=LongTopics()) for seed, name in enumerate(("one", "two"))]


@pytest.fixture(scope="session")
def byte_results(long_sets: list[Encoded]) -> list[Result]:
    return everything(long_sets, in_bytes(300, 1000, more=[]), Store(None))


@pytest.fixture
def pictures(tmp_path: Path) -> Dataset:
    """Text, a written image, a blank one, one that is damaged behind its header, and none of both."""
    folder = write_set(
        tmp_path / "set",
        [
            {"_id": "p1", "text": "tidal power"},
            {"_id": "p2", "image": "p2.png"},
            {"_id": "p3", "image": "p3.png"},
            {"_id": "p4", "image": "p4.jpg"},
            {"_id": "p5", "text": "both", "image": "p3.png"},
        ],
    )
    picture("Harbour invoice").save(folder / "p2.png")
    (folder / "p3.png").write_bytes(png("red"))
    picture("cut in half").save(folder / "p4.jpg")
    data = (folder / "p4.jpg").read_bytes()
    (folder / "p4.jpg").write_bytes(data[: len(data) // 2])
    dataset = load(folder)
    assert isinstance(dataset, Dataset)
    assert len(dataset.pages) == 5
    return dataset
