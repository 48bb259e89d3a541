"""Measure what budgets cost and keep on your own pages, before you choose one.

It needs no queries: it makes them from the pages (`glie.probes`). The results and scores at each
budget are compared with those of a search over all vectors. The figures compare budgets, and say
little about retrieval quality.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.codec import Codec
from glie.errors import InputError
from glie.identity import EncoderId, Identified
from glie.index.index import Index
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k
from glie.pages import Pages, Queries
from glie.probes import QUESTION_VECTORS, probes
from glie.progress import OnProgress, Progress, ignore
from glie.renamed import renamed

Floats = npt.NDArray[np.float32]

MOST_PAGES = 500  # measured; a random sample of more
QUESTIONS = 200
TOP = 5


@dataclasses.dataclass(frozen=True)
class Planned:
    """Bytes per page at one budget, and how much its results agree with those of all vectors."""

    budget: int | None  # bytes per page; None: all vectors, or a given codec
    bytes_per_page: float  # of the files; for all vectors, 2 bytes a number
    k: int | None
    dtype: str
    codewords: int
    overlap: float  # the share of the true top 5 that is found
    same_best: float  # the share of queries with the same best page
    error: float  # of a score, divided by the number of query vectors
    text_bytes: float = 0.0  # of the bytes per page, those of the words of its text
    # what each kind of code kept of the best pages, where one was chosen (`glie.codec.choose`)
    families: Mapping[str, float] = dataclasses.field(default_factory=dict)

    words = renamed("words", "codewords")

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the old names of renamed fields beside the new."""
        return {**dataclasses.asdict(self), "words": self.codewords}


def plan(
    pages: Pages,
    budgets: Sequence[int],
    *,
    encoder: Identified | Mapping[str, Any] | str | None = None,
    codec: Codec | None = None,
    texts: Sequence[str | None] | None = None,
    seed: int = 0,
    progress: OnProgress = ignore,
) -> list[Planned]:
    """Measure each budget, in bytes per page, on these pages: a row for each, and a last row for
    all vectors. `encoder` is what made the vectors. If glie's codebook does not fit them, one is
    fitted to the pages, as in an index. `codec` is measured too, in the row before the last.
    `texts` are those of the pages: their words take their share of each budget, and the rest is
    measured by the vectors. Of more than 500 pages, a random sample is measured."""
    if not isinstance(pages, Pages) or not len(pages):
        raise InputError(f"plan: expected glie.Pages, at least one, found {pages!r}")
    entry, rng = EncoderId.of(encoder), np.random.default_rng(seed)
    codecs = [Codec(bytes_per_page=budget) for budget in budgets]  # raises for a wrong budget
    if texts is not None and len(texts) != len(pages):
        raise InputError(f"texts: found {len(texts)} for {len(pages)} pages; expected one each")
    if len(pages) > MOST_PAGES:
        drawn = np.sort(rng.permutation(len(pages))[:MOST_PAGES])
        pages = Pages([pages[int(row)] for row in drawn], [pages.ids[row] for row in drawn])
        texts = None if texts is None else [texts[row] for row in drawn]
    questions = probes(pages, QUESTIONS, rng)
    exact = _exact(pages, questions, progress)
    rows: list[Planned] = []
    for budget, chosen in zip(budgets, codecs, strict=True):
        progress(Progress("budgets measured", len(rows), len(budgets)))
        rows.append(_measured(pages, texts, questions, exact, chosen, entry, budget))
    if codec is not None:
        progress(Progress("measuring the codec given"))
        rows.append(_measured(pages, texts, questions, exact, codec, entry, None))
    whole = 2 * pages.vectors.size / len(pages)
    return [*rows, Planned(None, whole, None, "bf16", 0, 1.0, 1.0, 0.0)]


def _exact(pages: Pages, questions: Queries, progress: OnProgress) -> Floats:
    """Exact scores (Q, P) over all vectors."""
    scores = []
    for at in range(0, len(questions), 10):
        progress(Progress("questions scored over all vectors", at, len(questions)))
        some = questions.slice(at, min(at + 10, len(questions)))
        rows = pages.offsets[:-1], pages.offsets[1:]
        scores.append(maxsim(some.vectors, some.offsets, pages.vectors, *rows))
    return np.concatenate(scores)


def _measured(
    pages: Pages,
    texts: Sequence[str | None] | None,
    questions: Queries,
    exact: Floats,
    codec: Codec,
    encoder: EncoderId | None,
    budget: int | None,
) -> Planned:
    """Measure one codec, in an index of the pages."""
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "planned.glie", codec, encoder=encoder)
        index.add(pages, texts=texts)
        facts = index.info()
        found = index.search(questions, TOP)
        families = index.codec.notes.get("families", {})
    place = {page_id: row for row, page_id in enumerate(pages.ids)}
    overlaps, same, errors = [], [], []
    for hits, truth in zip(found, exact, strict=True):
        best = top_k(truth, TOP)
        rows = np.array([place[page_id] for page_id in hits.ids])
        overlaps.append(len(set(rows) & set(best)) / len(best))
        same.append(rows[0] == best[0])
        errors.append(np.abs(hits.scores - truth[rows]).mean() / QUESTION_VECTORS)
    return Planned(
        budget,
        facts.index_bytes / facts.pages,
        facts.k,
        facts.dtype,
        facts.codewords,
        float(np.mean(overlaps)),
        float(np.mean(same)),
        float(np.mean(errors)),
        facts.text_bytes / facts.pages,
        families,
    )
