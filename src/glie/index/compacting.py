"""Rewriting an index: without its deleted pages, and with words for pages that have none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from glie.candidates import build
from glie.index import column_file
from glie.index.snapshot import Snapshot
from glie.index.writer import Fill, SegmentWriter, checked_texts
from glie.lexical.postings import Postings, Selected
from glie.lexical.terms import Analyzer

# The text of a page, by its id and metadata; None: it has none.
Texts = Callable[[str, dict[str, Any]], str | None]


def is_compact(state: Snapshot) -> bool:
    """Whether the files of a state are as few and as small as they can be."""
    stored = state.candidates
    pay = build.candidates_pay(len(state))
    misfit = pay != stored.complete() or stored.fault is not None
    deleted = any(entry.deleted for entry in state.manifest.segments)
    # an older version wrote no columns
    large = [segment.pages >= column_file.FEWEST_PAGES for segment in state.segments]
    columns = [file is not None for file in state.columns]
    return len(state.segments) < 2 and not deleted and not misfit and large == columns


def rewrite(
    state: Snapshot, writer: SegmentWriter, texts: Texts | None, analyzer: Analyzer
) -> None:
    """Write the live pages of a state again. Those without words get the words of `texts`."""

    def fill(words: Selected | None, records: Sequence[bytes]) -> Selected | None:
        return words if texts is None else _filled(words, records, texts, analyzer)

    with_words: Fill = fill
    for number in range(len(state.segments)):
        writer.copy(state, number, fill=with_words)
    writer.flush()


def _filled(
    words: Selected | None, records: Sequence[bytes], texts: Texts, analyzer: Analyzer
) -> Selected:
    words = words or Selected.all(Postings.of([{}] * len(records)))
    has_words = words.postings.lengths[words.rows] > 0
    if has_words.all():
        return words
    found = []
    for line, known in zip(records, has_words, strict=True):
        page_id, metadata = json.loads(line)
        (text,) = [None] if known else checked_texts([page_id], [texts(page_id, metadata)])
        found.append(analyzer.counted(text or ""))
    return Selected.all(Postings.merged([words]).filled(Postings.of(found)))
