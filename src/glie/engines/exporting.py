"""Export an index to an engine: the pages that are new or have changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from glie.engines.base import Engine
from glie.engines.collection import Collection
from glie.errors import InputError
from glie.index.index import Index
from glie.progress import OnProgress, Progress, ignore

PAGES_PER_STEP = 2048  # compared by digest at a time, and sent in one or more requests


@dataclasses.dataclass
class Exported:
    """Counts of an export."""

    pages_uploaded: int = 0
    pages_unchanged: int = 0
    pages_deleted: int = 0


def export(
    index: Index,
    engine: Engine,
    *,
    layout: str | None = None,
    settings: Mapping[str, Any] | None = None,
    prune: bool = False,
    progress: OnProgress = ignore,
) -> tuple[Collection, Exported]:
    """Store the pages of an index in an engine, skipping those that are already there unchanged.
    So an interrupted export can be continued. `prune` deletes pages that are not in the index. Pass
    engine settings when you create the collection: an existing one ignores `settings`. `layout` is
    that of `Collection.create`.

    Kept pictures stay in the index.
    """
    if index.dim is None:
        raise InputError(f"{index.path}: it has never held a page; there is nothing to export")
    target = Collection.create(
        engine,
        index.codec,
        index.dim,
        encoder=index.encoder,
        **{"layout": layout, **(settings or {})},
    )
    report = upload(index, target, progress)
    if prune:
        gone = [page_id for page_id, _ in engine.records() if page_id not in index]
        report.pages_deleted = target.delete(gone) if gone else 0
    engine.optimize()
    return target, report


def upload(index: Index, target: Collection, progress: OnProgress = ignore) -> Exported:
    """Store the pages of an index that a collection of its codec lacks or has otherwise."""
    report, done = Exported(), 0
    new = target.engine.count() == 0
    for codes, metadata in index.stored(PAGES_PER_STEP):
        rows = target.rows(codes, metadata)
        there = {} if new else target.engine.digests(codes.ids)
        rows = [row for row in rows if there.get(row.entry.id) != row.entry.digest]
        if rows:
            target.put(rows)
        report.pages_uploaded += len(rows)
        report.pages_unchanged += len(codes) - len(rows)
        done += len(codes)
        progress(Progress("pages", done, len(index)))
    return report
