"""Split a set by page into two halves: one to fit on, and one to measure."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from glie.errors import DatasetError
from glie.evaluation.encoded import Encoded
from glie.wording import count


class Split(NamedTuple):
    """Two parts of a set, without a page or a question in common."""

    train: Encoded
    test: Encoded
    dropped: int  # questions of which no page is in the set

    @property
    def note(self) -> str:
        """How large both are."""
        train, test = (
            f"{count(len(half.page_ids), 'page')} and {count(len(half.queries), 'question')}"
            for half in (self.train, self.test)
        )
        lost = f"; {count(self.dropped, 'question')} dropped, with no page in the set"
        end = lost if self.dropped else ""
        return f"{self.test.name}: fitted on {train}, measured on {test}{end}."


def split_by_page(encoded: Encoded, seed: int = 0) -> Split:
    """Split a set at random, with as many questions and pages on each side as can be. Pages that
    answer the same question stay together, so that no question is cut in two; the larger these
    groups, the less equal the halves."""
    rows = {page: row for row, page in enumerate(encoded.page_ids)}
    answers = [
        [rows[page] for page in encoded.relevant[query] if page in rows]
        for query in encoded.queries.ids
    ]
    groups = _groups(len(rows), answers)
    asked, sizes = Counter(groups[answer[0]] for answer in answers if answer), Counter(groups)
    order = dict.fromkeys(groups[row] for row in np.random.default_rng(seed).permutation(len(rows)))
    sides: dict[int, int] = {}
    questions, pages = [0, 0], [0, 0]
    # the large ones first: those that follow make up for their difference
    for group in sorted(order, key=lambda group: (-asked[group], -sizes[group])):
        first, second = zip(questions if asked[group] else pages, pages, strict=True)
        side = sides[group] = int(second < first)
        questions[side] += asked[group]
        pages[side] += sizes[group]
    of_page = np.array([sides[group] for group in groups])
    of_question = np.array([of_page[answer[0]] if answer else -1 for answer in answers])
    train, test = (
        encoded.part(f"{encoded.name}-{name}-half", of_page == side, of_question == side)
        for side, name in enumerate(("train", "test"))
    )
    if not len(train.queries) or not len(test.queries):
        raise DatasetError(
            f"{encoded.name}: it has no two halves with questions: too few, or all of them share "
            "their pages"
        )
    return Split(train, test, int((of_question < 0).sum()))


def _groups(total: int, together: list[list[int]]) -> list[int]:
    """The group of each row, named by one of its rows: rows that are listed together share it."""
    above = list(range(total))

    def top(row: int) -> int:
        while above[row] != row:
            above[row] = above[above[row]]  # a shorter way for the next time
            row = above[row]
        return row

    for first, *others in filter(None, together):
        for other in others:
            above[top(other)] = top(first)
    return [top(row) for row in range(total)]
