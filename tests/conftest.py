"""Tiny seeded pages with the shape of real ones: a few clusters of unit vectors a page."""

from __future__ import annotations

import functools
import importlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import numpy.typing as npt
import pytest

import glie
from glie.encoders.int8_model import Int8Model
from glie.encoders.torch_model import TorchModel

# Compiled loops of tests are kept apart from those of the user.
os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "glie-loops-of-tests")
# So is what searches keep of an index: glie.strength.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / "glie-cache-of-tests")
# Tests are small work, and are to run the compiled loops; tests/kernels/test_small.py does not.
importlib.import_module("glie.kernels._compiled")

# Matrices of tests are small: a second thread of torch would mostly wait, and keep a core busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Floats = npt.NDArray[np.float32]

# A first call compiles a kernel, so the time of one example says nothing.
hypothesis.settings.register_profile("glie", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("glie")


def unit(x: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True), dtype=np.float32)


def make_arrays(
    count: int, *, seed: int = 0, dim: int = 16, low: int = 5, high: int = 40
) -> list[Floats]:
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(count):
        centres = unit(rng.normal(size=(4, dim)))
        rows = centres[rng.integers(4, size=int(rng.integers(low, high + 1)))]
        arrays.append(unit(rows + 0.15 * rng.normal(size=rows.shape)))
    return arrays


@pytest.fixture(scope="session", autouse=True)
def _embedded_model() -> Iterator[None]:
    """Load the weights of the embedded encoder once for all tests, not for each command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glie.encoders.minilm.TorchModel", functools.cache(TorchModel))
        patch.setattr("glie.encoders.int8_model.Int8Model", functools.cache(Int8Model))
        yield


@pytest.fixture(autouse=True)
def shared_codebooks(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of shared codebooks: an empty one for each test, not that of the user."""
    folder = tmp_path_factory.getbasetemp() / f"codebooks-{uuid.uuid4().hex}"
    monkeypatch.setenv("GLIE_CODEBOOKS", str(folder))
    return folder


@pytest.fixture
def arrays() -> Callable[..., list[Floats]]:
    return make_arrays


@pytest.fixture
def pages() -> glie.Pages:
    return glie.Pages(make_arrays(30), ids=[f"a.pdf#{i + 1}" for i in range(30)])


@pytest.fixture
def index(tmp_path: Path, pages: glie.Pages) -> glie.Index:
    """30 pages at k = 4 with metadata."""
    made = glie.Index.create(tmp_path / "my.glie", glie.Codec(k=4))
    made.add(pages, metadata=[{"document": f"{i % 3}.pdf", "page": i} for i in range(30)])
    return made
