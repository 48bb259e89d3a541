"""Rankings, and measures of them by ir-measures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from glie.codec.codec import SHORTLIST
from glie.codec.codes import Codes
from glie.errors import MissingExtraError
from glie.evaluation.datasets import Dataset
from glie.evaluation.encoded import Encoded
from glie.index import format as index_format
from glie.kernels.maxsim import maxsim
from glie.pages import Pages, Queries
from glie.search import CodeBlock, Cost, Ranking, best_first, prepare, rank, two_stage

DEPTH = 5  # pages of a ranking that nDCG@5 judges
Judgements = Mapping[str, Mapping[str, int]]  # grades, by query and page
Rankings = Mapping[str, Sequence[str]]  # pages, best first, by query

# what is reported, and what ir-measures calls it
MEASURES = {
    "ndcg_at_5": "nDCG@5",
    "ndcg_at_10": "nDCG@10",
    "recall_at_5": "R@5",
    "recall_at_10": "R@10",
    "recall_at_100": "R@100",
}


class StoredCodes:
    """Codes as an index stores them, taken in part by part: those of all pages need never be there
    in full precision."""

    def __init__(self, parts: Iterable[Codes], size: Callable[[Codes], int] | None = None) -> None:
        """`size` counts the bytes of codes that stand for others, more compact than an index has
        them."""
        self.blocks: list[CodeBlock] = []
        self.ids: list[str] = []
        self._parts: list[index_format.StoredCodes] = []
        self._bytes = 0
        for codes in parts:
            part = index_format.StoredCodes.of(codes)
            counts = part.sections["counts"]
            self.blocks.append(
                CodeBlock(part.vectors, counts, len(self.ids), np.arange(len(codes)))
            )
            self._parts.append(part)
            self._bytes += part.bytes if size is None else size(codes)
            self.ids.extend(codes.ids)

    @property
    def bytes_per_page(self) -> float:
        """What is stored of a page, without its id and metadata."""
        return self._bytes / len(self.ids)

    def take(self, rows: npt.NDArray[np.int64]) -> Codes:
        """The codes of some pages, as they are read back."""
        firsts = np.array([block.first for block in self.blocks])
        where = np.searchsorted(firsts, rows, side="right") - 1
        found = [
            self._parts[w].take(np.array([row - firsts[w]]))
            for w, row in zip(where, rows, strict=True)
        ]
        return index_format.StoredCodes.joined(found).read([self.ids[row] for row in rows])


def search_codes(
    queries: Queries,
    codes: Codes | StoredCodes,
    regenerate: Callable[[Codes], Pages] | None,
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """The best pages for each query, by row, as an index of these codes would find them: rounded
    as it stores them, the shortlist regenerated if there is a way to."""
    stored = codes if isinstance(codes, StoredCodes) else StoredCodes([codes])

    def first_stage(count: int) -> Ranking:
        return rank(queries, stored.blocks, count)

    return two_stage(queries, first_stage, stored.take, regenerate, top, shortlist)


def search_oracle(
    queries: Queries,
    codes: Codes | StoredCodes,
    read: Callable[[Codes], Pages],
    top: int,
    shortlist: int = SHORTLIST,
) -> Ranking:
    """The same with the true vectors of the shortlist; reading them back from a cache is not part
    of what it took."""
    spent = 0.0

    def timed(listed: Codes) -> Pages:
        nonlocal spent
        began = time.perf_counter()
        pages = read(listed)
        spent += time.perf_counter() - began
        return pages

    found = search_codes(queries, codes, timed, top, shortlist)
    seconds = found.cost.seconds - spent
    return found._replace(cost=dataclasses.replace(found.cost, seconds=seconds))


def search_vectors(queries: Queries, blocks: Iterable[Pages], top: int) -> Ranking:
    """The same by exact MaxSim over all vectors of every page, block after block."""
    prepare()
    positions = [np.empty(0, np.int64) for _ in queries.ids]
    scores = [np.empty(0, np.float32) for _ in queries.ids]
    pages = read = 0
    seconds = 0.0  # of the search: reading blocks back from a cache is not part of it
    for block in blocks:
        began = time.perf_counter()
        rows = block.offsets[:-1], block.offsets[1:]
        found = maxsim(queries.vectors, queries.offsets, block.vectors, *rows)
        for query, mine in enumerate(found):
            best = best_first(mine, top)
            merged = np.concatenate([scores[query], mine[best]])
            keep = best_first(merged, top)
            positions[query] = np.concatenate([positions[query], pages + best])[keep]
            scores[query] = merged[keep]
        pages += len(block)
        read += 2 * block.vectors.size
        seconds += time.perf_counter() - began
    return Ranking(positions, scores, Cost(pages, 0, read, seconds))


def ndcg_at_5(dataset: Dataset | Encoded, found: Sequence[npt.NDArray[np.int64]]) -> float:
    """Mean nDCG@5 of the rows of pages found for each query, best first, in the set's order."""
    if isinstance(dataset, Encoded):
        pages, queries = dataset.page_ids, dataset.queries.ids
    else:
        pages, queries = list(dataset.pages), list(dataset.queries)
    rankings = {
        query: [pages[row] for row in rows] for query, rows in zip(queries, found, strict=True)
    }
    return float(np.mean(each_measure(dataset.relevant, rankings, ["ndcg_at_5"])["ndcg_at_5"]))


def each_measure(
    relevant: Judgements, rankings: Rankings, measures: Sequence[str] = tuple(MEASURES)
) -> dict[str, npt.NDArray[np.float64]]:
    """Of every query, in the order of the rankings, each of some measures."""
    try:
        import ir_measures
    except ImportError:
        raise MissingExtraError("measuring retrieval", "evaluate") from None
    # ranks, not scores: the measure must see our order, ties included
    run = {
        query: {page: float(-rank) for rank, page in enumerate(ranking)}
        for query, ranking in rankings.items()
    }
    asked = {ir_measures.parse_measure(MEASURES[name]): name for name in measures}
    found: dict[str, dict[str, float]] = {name: {} for name in measures}
    judged = {query: dict(relevant[query]) for query in rankings}
    for measured in ir_measures.iter_calc(list(asked), judged, run):
        found[asked[measured.measure]][measured.query_id] = float(measured.value)
    # a query with nothing found is not in the output, and has scored nothing
    return {
        name: np.array([values.get(query, 0.0) for query in rankings])
        for name, values in found.items()
    }


def trec_run(queries: Sequence[str], pages: Sequence[str], found: Ranking, name: str) -> str:
    """A ranking as a TREC run file: query, Q0, page, rank, score, name. Scores fall with the rank,
    by which readers of such files sort: those of a shortlist are not on one scale with the rest.
    White space in an id, which would be taken for the end of it, is written as an underscore."""
    lines = []
    for query, rows in zip(queries, found.positions, strict=True):
        for place, row in enumerate(rows, start=1):
            ids = ("_".join(text.split()) for text in (query, pages[row], name))
            asked, page, label = ids
            lines.append(f"{asked} Q0 {page} {place} {len(rows) - place + 1} {label}\n")
    return "".join(lines)
