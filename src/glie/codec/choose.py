"""Choose a code for the pages of an encoder that glie has no codebook for, by trying them.

Each family codes some of the first pages, and made-up questions (`glie.probes`) are asked of them.
What counts is the share of the exact ten best pages that is kept, and how often the best page stays
the best: their mean. Codewords keep more of the ten, other families the page that answers. Tables
count in the budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from glie.codec.adapt import Sample, adapted_to, every
from glie.codec.anchors import anchor, cluster
from glie.codec.budget import reduced, transform_config
from glie.codec.codes import quantised
from glie.codec.config import MAX_K, CodecConfig
from glie.codec.readout.base import AnchorsOnly, Readout
from glie.codec.readout.coordinates import (
    DIRECTION_TYPE,
    MOST_DIRECTIONS,
    RATES,
    Coordinates,
)
from glie.codec.readout.residual import Residual
from glie.codec.readout.transform import Transform, grouped
from glie.errors import InputError
from glie.kernels.maxsim import maxsim
from glie.kernels.quantize import row_bytes
from glie.kernels.top_k import top_k
from glie.pages import Pages, Queries
from glie.probes import probes

MOST_PAGES = 150  # coded to choose by
QUESTIONS = 200
TOP = 10  # best pages of a question; of fewer than 100 pages, a tenth
TABLE_SHARE = 0.1  # of the bytes of all pages, at most, for the table of coordinates
# By real questions, coordinates are better than these probes say, where a page has some groups:
# docs/experiments.md, Made-up questions.
AHEAD, AHEAD_FROM = 0.025, 200  # what another family must keep more, from so many bytes a page on
FEWEST_DIRECTIONS = 24  # with fewer, coordinates are not tried
MOST_FITTED = 100_000  # groups that the table is fitted to

Chosen = tuple[CodecConfig, Readout]


def chosen_for(sample: Sample, bytes_per_page: int, *, more: bool) -> Chosen:
    """The settings and the read-out for a corpus, the best of FAMILIES on a sample of it.

    If `more` pages will come, families are fitted on one half of the sample and measured on the
    other, and the chosen one is fitted on all of it. A table's bytes count in the budget, unless
    more pages will come, among which it weighs little.
    """
    halves = more and len(sample.pages) > 1
    fitted = sample._replace(pages=every(sample.pages, 2, 0)) if halves else sample
    tested = every(sample.pages, 2, 1) if halves else sample.pages
    tested = every(tested, -(-len(tested) // MOST_PAGES), 0)
    found: dict[str, Chosen] = {}
    for name, fit in FAMILIES.items():
        try:
            found[name] = fit(fitted, bytes_per_page, more)
        except InputError:  # not for so few bytes, or pages
            continue
    questions = probes(tested, QUESTIONS, np.random.default_rng(0))
    best = _best_pages(questions, tested)
    kept = {name: _kept(*each, tested, questions, best) for name, each in found.items()}
    ahead = {"coordinates": AHEAD if bytes_per_page >= AHEAD_FROM else 0}
    name = max(kept, key=lambda family: kept[family] + ahead.get(family, 0))
    config, readout = FAMILIES[name](sample, bytes_per_page, more) if halves else found[name]
    return config, _with_reason(readout, kept)


def _codewords(sample: Sample, bytes_per_page: int, more: bool) -> Chosen:
    config, book = adapted_to(sample, bytes_per_page, more=more)
    return config, Residual(book)


def _coordinates(sample: Sample, bytes_per_page: int, more: bool) -> Chosen:
    dim = sample.pages.dim
    config = transform_config(bytes_per_page, dim)
    most = min(MOST_DIRECTIONS, dim)
    if not more:
        room = int(TABLE_SHARE * bytes_per_page * sample.of_pages)
        most = min(most, room // (row_bytes(dim, DIRECTION_TYPE) + 6))
    if most < min(FEWEST_DIRECTIONS, dim):
        raise InputError("bytes_per_page: too few for a table of coordinates")
    pages = sample.pages
    codes = quantised(anchor(pages, cluster(pages, config)), config.dtype, exact=False)
    rates = RATES[True]  # a new table is coded by a trellis
    wanted = np.full(len(pages), 8 * config.residual_bytes // rates[0])
    vectors, anchors, _, _ = grouped(pages, codes, wanted)
    step = -(-len(vectors) // MOST_FITTED)
    notes = {"adapted_to": sample.of_pages}
    table = Coordinates.fit(vectors[::step], anchors[::step], most, rates[-1], notes=notes)
    if not more:
        left = bytes_per_page - len(table.to_bytes()) // sample.of_pages
        config = dataclasses.replace(transform_config(left, dim), bytes_per_page=bytes_per_page)
    return config, Transform(table)


def _anchors(sample: Sample, bytes_per_page: int, more: bool) -> Chosen:
    if more:  # a table weighs little, and each anchor has further bytes in a large index
        raise InputError("more pages: tables serve them better")
    config = CodecConfig(k=MAX_K, dtype="int1", bytes_per_page=bytes_per_page, ward=True)
    return reduced(config, bytes_per_page, sample.pages.dim, exact=False), AnchorsOnly()


# In order of preference where several keep as much.
FAMILIES: Mapping[str, Callable[[Sample, int, bool], Chosen]] = {
    "coordinates": _coordinates,
    "codewords": _codewords,
    "anchors of 1 bit": _anchors,
}


def _kept(
    config: CodecConfig, readout: Readout, pages: Pages, questions: Queries, best: list[list[int]]
) -> float:
    """What the code of the pages keeps: the mean of the share of the exact best pages, and of the
    share of questions whose best page stays the best."""
    readout = readout.at(config)
    codes = readout.code(pages, anchor(pages, cluster(pages, config)), config.dtype)
    found = _best_pages(questions, readout.regenerate(codes))
    shares = [len({*a} & {*b}) / len(b) for a, b in zip(found, best, strict=True)]
    first = [a[0] == b[0] for a, b in zip(found, best, strict=True)]
    return float(np.mean(shares) + np.mean(first)) / 2


def _best_pages(questions: Queries, pages: Pages) -> list[list[int]]:
    rows = pages.offsets[:-1], pages.offsets[1:]
    scores = maxsim(questions.vectors, questions.offsets, pages.vectors, *rows)
    top = max(1, min(TOP, len(pages) // 10))
    return [top_k(row, top).tolist() for row in scores]


def _with_reason(readout: Readout, kept: Mapping[str, float]) -> Readout:
    """The read-out, with what each family kept among its notes."""
    reason = {name: round(share, 3) for name, share in kept.items()}
    if isinstance(readout, Residual):
        book = readout.codebook
        book = dataclasses.replace(book, notes={**book.notes, "families": reason})
        return dataclasses.replace(readout, codebook=book)
    if isinstance(readout, Transform):
        table = readout.table
        table = dataclasses.replace(table, notes={**table.notes, "families": reason})
        return dataclasses.replace(readout, table=table)
    return AnchorsOnly({"families": reason})
