"""Qdrant Edge: the engine of Qdrant in this process, over a folder, without a server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glie.engines.base import (
    COMPACT,
    MULTIVECTOR,
    Candidates,
    Entry,
    Restriction,
    Row,
    first_line,
    in_steps,
    require,
    told_as,
)
from glie.engines.points import (
    CODES,
    COMPACT_PAYLOAD,
    HEADER,
    MEAN,
    PARTS,
    PAYLOAD,
    TERMS,
    Conditions,
    candidates_of,
    entry_of,
    header_of,
    header_parts,
    payload_of,
    point_id,
    vectors_of,
)
from glie.errors import EngineError, InputError
from glie.pages import Floats, Queries

EXTRA = "qdrant-edge"
OLDEST = "0.9"
CONFIG = "edge_config.json"
UNFINISHED = "temp_segments"  # a folder of what `optimize` is making
RECORDS_PER_REQUEST = 1000
DATATYPES = {
    "float32": "Float32",
    "float16": "Float16",
    "turbo16": "Turbo16",
    "turbo8": "Turbo8",
    "turbo4": "Turbo4",
}


class QdrantEdge:
    """A collection in a folder of `location`, which one process may open at a time. It has no
    options.

    Settings for `create`: on_disk and datatype (one of DATATYPES; in the layout COMPACT turbo4
    unless given) of the vectors; all others go to qdrant_edge.EdgeConfig. A new collection in the
    layout COMPACT has no write-ahead log, which takes 32 MB, as each change is flushed.
    """

    def __init__(self, location: str, collection: str) -> None:
        require("qdrant-edge-py", OLDEST, EXTRA)
        import qdrant_edge

        self._edge = qdrant_edge
        self._folder = Path(location) / collection
        self._opened: Any = None
        self.place = f"qdrant-edge in {self._folder}"
        if Path(location).is_file():
            raise EngineError(f"{self.place}: {location} is a file; expected a folder")
        self._conditions = Conditions(
            qdrant_edge,
            range=qdrant_edge.RangeFloat,
            has_id=lambda points: qdrant_edge.HasIdCondition(set(points)),
            is_empty=qdrant_edge.IsEmptyCondition,
            place=self.place,
        )

    @property
    def _shard(self) -> Any:
        if self._opened is None:
            with told_as(self.place):
                try:
                    self._opened = self._edge.EdgeShard.load(str(self._folder))
                except Exception as error:
                    if "WouldBlock" not in str(error):
                        raise
                    raise EngineError(
                        f"{self.place}: another process has it open; close that one first"
                    ) from None
                self._clean()
        return self._opened

    def _clean(self) -> None:
        """Delete what a process left that was killed while it optimised. This one has the lock."""
        for left in (self._folder / UNFINISHED).glob("*"):
            shutil.rmtree(left)

    def exists(self) -> bool:
        return self._opened is not None or (self._folder / CONFIG).exists()

    def create(self, dim: int, layout: str, settings: Mapping[str, Any]) -> None:
        edge, rest = self._edge, dict(settings)
        if layout == COMPACT:
            rest = {"datatype": "turbo4", "wal_enabled": False, **rest}
        with told_as(self.place):
            try:
                params = {
                    "size": dim,
                    "distance": edge.Distance.Dot,
                    **_vector_settings(edge, rest),
                }
                flat = edge.HnswIndexConfig(0, 100, 10_000)  # no graph
                multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
                if layout == COMPACT:
                    # for so many candidates the scan of all means is faster than a graph
                    vectors = {MEAN: edge.EdgeVectorParams(**params, hnsw_config=flat)}
                else:
                    codes = edge.EdgeVectorParams(
                        **params, multivector_config=multi, hnsw_config=flat
                    )
                    vectors = {CODES: codes, MEAN: edge.EdgeVectorParams(**params)}
                config = edge.EdgeConfig(vectors=vectors, **rest)
            except TypeError as error:
                raise InputError(f"{self.place}: settings: {first_line(error)}") from None
            self._folder.mkdir(parents=True, exist_ok=True)
            self._opened = edge.EdgeShard.create(str(self._folder), config)
            whole = edge.PayloadSchemaType.Integer
            self._update(edge.UpdateOperation.create_field_index(TERMS, whole))

    def dim(self) -> int:
        return int(self._vectors()[MEAN]["size"])

    def layout(self) -> str:
        return MULTIVECTOR if CODES in self._vectors() else COMPACT

    def _vectors(self) -> dict[str, Any]:
        """Read off the folder: the shard does not say."""
        try:
            found: dict[str, Any] = json.loads((self._folder / CONFIG).read_bytes())["vectors"]
            _ = found[MEAN]["size"]
            if CODES in found and "multivector_config" not in found[CODES]:
                raise KeyError(CODES)
            return found
        except (OSError, ValueError, KeyError, TypeError):
            raise EngineError(f"{self.place}: not made by glie; choose another name") from None

    def read_header(self) -> bytes | None:
        first = self._retrieved([0], [HEADER, PARTS])
        if not first:
            return None
        parts = list(range(1, int((first[0].payload or {}).get(PARTS, 1))))
        rest = self._retrieved(parts, [HEADER])
        rest.sort(key=lambda point: int(point.id))
        return header_of([point.payload for point in (*first, *rest)], self.place)

    def write_header(self, header: bytes) -> None:
        # the first says how many there are, so it comes last
        for number, payload in reversed(list(enumerate(header_parts(header)))):
            point = self._edge.Point(number, {}, payload)
            self._update(self._edge.UpdateOperation.upsert_points([point]))
        self._flush()

    def _pages(self, allowed: Any = None) -> Any:
        """A filter of all pages that match another one."""
        must = [self._edge.HasVectorCondition(MEAN), *([] if allowed is None else [allowed])]
        return self._edge.Filter(must=must)

    def count(self) -> int:
        with told_as(self.place):
            return int(self._shard.count(self._edge.CountRequest(filter=self._pages())))

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for payload in self._scrolled(self._pages(), "id", "metadata"):
            yield payload["id"], payload["metadata"]

    def _scrolled(self, pages: Any, *keys: str) -> Iterator[Any]:
        """Some keys of the payloads of all pages that match a filter."""
        offset = None
        while True:
            request = self._edge.ScrollRequest(
                offset=offset,
                limit=RECORDS_PER_REQUEST,
                filter=pages,
                with_payload=list(keys),
            )
            with told_as(self.place):
                found, offset = self._shard.scroll(request)
            yield from (point.payload for point in found)
            if offset is None:
                return

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        found = self._retrieved([point_id(page_id) for page_id in ids], ["id", "digest"])
        return {point.payload["id"]: point.payload["digest"] for point in found}

    def _retrieved(self, points: Sequence[int | str], keys: list[str]) -> list[Any]:
        with told_as(self.place):
            return list(self._shard.retrieve(list(points), with_payload=keys, with_vector=False))

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        layout = self.layout()
        for some in in_steps(rows):
            points = [
                self._edge.Point(
                    point_id(row.entry.id), vectors_of(row, layout), payload_of(row.entry, layout)
                )
                for row in some
            ]
            self._update(self._edge.UpdateOperation.upsert_points(points))
        if leaving:
            self.delete(leaving)
        self._flush()

    def delete(self, ids: Sequence[str]) -> None:
        points = [point_id(page_id) for page_id in ids]
        self._update(self._edge.UpdateOperation.delete_points(points))
        self._flush()

    def _update(self, operation: Any) -> None:
        with told_as(self.place):
            self._shard.update(operation)

    def _flush(self) -> None:
        with told_as(self.place):
            self._shard.flush()

    def optimize(self) -> None:
        with told_as(self.place):
            self._shard.optimize()
        self._flush()

    def candidates(self, means: Floats, count: int | None, among: Restriction) -> list[Candidates]:
        edge, allowed = self._edge, self._conditions.restriction(among)
        if count is None:
            every = self._scrolled(self._pages(allowed), "id", "code")
            return [candidates_of(every, self.place)] * len(means)
        requests = [
            edge.QueryRequest(
                limit=count,
                query=edge.Query.Nearest(mean, MEAN),
                filter=allowed,
                params=edge.SearchParams(exact=True),
                with_payload=["id", "code"],
            )
            for mean in means.tolist()
        ]
        with told_as(self.place):
            found = self._shard.query_batch(edge.QueryBatchRequest(requests))
        return [candidates_of((p.payload for p in points), self.place) for points in found]

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        found = self._retrieved([point_id(page_id) for page_id in ids], list(COMPACT_PAYLOAD))
        return [entry_of(point.payload, self.place) for point in found]

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        edge, allowed, requests = self._edge, self._conditions.restriction(among), []
        for vectors in queries:
            first = []
            if prefetch is not None:
                mean = edge.Query.Nearest(vectors.mean(axis=0).tolist(), MEAN)
                first = [edge.Prefetch(limit=prefetch, query=mean, filter=allowed)]
            requests.append(
                edge.QueryRequest(
                    limit=count,
                    query=edge.Query.Nearest(vectors.tolist(), CODES),
                    prefetches=first,
                    filter=allowed,
                    params=edge.SearchParams(exact=prefetch is None),
                    with_payload=list(PAYLOAD),
                )
            )
        with told_as(self.place):
            found = self._shard.query_batch(edge.QueryBatchRequest(requests)) if requests else []
        return [[entry_of(point.payload, self.place) for point in points] for points in found]

    def close(self) -> None:
        if self._opened is not None:
            with told_as(self.place):
                self._opened.close()
            self._opened = None


def _vector_settings(edge: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Take the settings for vectors out of `settings`, as this library's types."""
    found = dict[str, Any]()
    if "on_disk" in settings:
        found["memory"] = edge.Memory.Cold if settings.pop("on_disk") else edge.Memory.Cached
    if "datatype" in settings:
        kind = str(settings.pop("datatype"))
        if kind not in DATATYPES:
            known = ", ".join(DATATYPES)
            raise InputError(f"setting datatype: expected one of {known}, found {kind!r}")
        found["datatype"] = getattr(edge.VectorStorageDatatype, DATATYPES[kind])
    return found
