"""tools/train_readout.py: every read-out starts at the fixed mix, and can learn."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import glie
from glie.codec.codec import Codec
from glie.codec.readout.codebook import Codebook, fit_codebook, residuals
from tests.conftest import make_arrays, unit
from tests.evaluation.topics import make_set

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("train_readout")


def coded(pages: glie.Pages, codewords: int = 32) -> tuple[glie.Codes, Codebook, Codec]:
    free = Codec(2, dtype="int2").compress(pages)
    rest, _ = residuals(pages, free, 0.5)
    book = fit_codebook(rest, codewords)
    codec = Codec.with_codebook(book, 110)
    return codec.compress(pages), book, codec


def test_untrained_they_are_what_a_search_reconstructs(tool: ModuleType) -> None:
    pages = glie.Pages(make_arrays(9, low=1, high=40))
    codes, book, codec = coded(pages)
    made = codec.regenerate(codes)
    tokens = unit(np.random.default_rng(0).normal(size=(5, 16)))
    expected = [(tokens @ rows.T).max(axis=1) for rows in made]
    store, rows = tool.Store(codes, book, codec.config.first_layer), torch.tensor([3, 0, 8])
    asked = torch.from_numpy(tokens).expand(3, -1, -1)
    for name, readout in tool.readouts(book).items():
        found = readout.matches(asked, store.batch(rows)).detach().numpy()
        for page, mine in zip(rows.tolist(), found, strict=True):
            np.testing.assert_allclose(mine, expected[page], atol=2e-3, err_msg=name)


def test_training_brings_matches_nearer_to_the_true_ones(tool: ModuleType) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    pages = glie.Pages(make_arrays(40, low=20, high=30))
    codes, book, codec = coded(pages, 16)
    queries = [unit(page[:3] + 0.1 * rng.normal(size=(3, 16))) for page in pages]
    grades = [{row: 1} for row in range(40)]
    asked = tool.Questions("made", pages, glie.Queries(queries), grades)
    trainer = tool.Trainer(
        asked, np.arange(40), codes, tool.Store(codes, book, codec.config.first_layer), 0
    )
    nets = {name: tool.readouts(book)[name] for name in ("shares", "pair", "gate")}
    tokens, real, rows, true = trainer.batch()

    @torch.no_grad()
    def errors() -> dict[str, float]:
        batch, asked = trainer.store.batch(rows), real.repeat_interleave(tool.CANDIDATES, 0)
        found = {name: net.matches(tokens, batch) - true for name, net in nets.items()}
        return {name: float(missed[asked].square().mean()) for name, missed in found.items()}

    before = errors()
    trainer.train(nets, argparse.Namespace(steps=60, rate=3e-3, token=20, temperature=0.07))
    after = errors()
    assert after["pair"] < 0.85 * before["pair"]
    assert after["gate"] < 0.97 * before["gate"]


def test_joined_pages_answer_what_their_parts_answered(tool: ModuleType) -> None:
    one = make_set("made")
    joined = tool.questions_of(one, 3, 0)
    assert len(joined.pages) < len(one.page_ids)
    assert joined.pages.offsets[-1] == one.lengths.sum()
    alone = tool.questions_of(one, 1, 0)
    for mine, parts in zip(joined.grades, alone.grades, strict=True):
        rows = np.concatenate([alone.pages[row] for row in parts])
        found = np.concatenate([joined.pages[row] for row in mine])
        assert {row.tobytes() for row in rows} <= {row.tobytes() for row in found}
