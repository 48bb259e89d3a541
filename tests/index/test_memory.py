"""Codes in memory are searched as an index searches them."""

from __future__ import annotations

import numpy as np
import pytest

import glie
from glie.evaluation import Dataset
from glie.index.memory import search_codes, search_oracle
from glie.measures import ndcg_at_5


def test_codes_are_searched_as_an_index_would() -> None:
    """Equal pages come in order, whatever their names; more pages than asked for stay out."""
    pages = glie.Pages([np.eye(4)[[0]]] * 7, ids=list("zyxwvut"))
    queries, codes = glie.Queries([np.eye(4)[[0]]]), glie.Codec(1).compress(pages)
    found = search_codes(queries, codes, None, 5).positions
    assert found[0].tolist() == [0, 1, 2, 3, 4]
    dataset = Dataset("ties", dict.fromkeys("zyxwvut", ""), {"q": ""}, {"q": {"z": 1}})
    assert ndcg_at_5(dataset, found) == 1.0


def test_reading_true_vectors_back_is_not_part_of_the_search(
    pages: glie.Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still but for a second each time that pages are read."""
    queries = glie.Queries([pages[0][:2], pages[1][:2]])
    codes = glie.Codec(2).compress(pages)
    now, reads = 0.0, 0

    def read(listed: glie.Codes) -> glie.Pages:
        nonlocal now, reads
        now, reads = now + 1, reads + 1
        return glie.Pages([pages[pages.ids.index(page)] for page in listed.ids], listed.ids)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    found = search_oracle(queries, codes, read, 5, 10)
    assert reads == 1
    assert found.cost.seconds == 0
