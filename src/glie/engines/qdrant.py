"""Qdrant through its client: a server or cluster, or the client's own local store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from glie.engines.base import Entry, Restriction, Row, first_line, in_steps, older, require
from glie.engines.points import (
    CODES,
    HEADER,
    MEAN,
    PARTS,
    PAYLOAD,
    TERMS,
    Conditions,
    entry_of,
    header_of,
    header_parts,
    payload_of,
    point_id,
)
from glie.errors import EngineError, GlieError, InputError
from glie.pages import Queries

EXTRA = "qdrant"
OLDEST_CLIENT = "1.20"  # its local store accepts points without vectors
OLDEST_SERVER = "1.13"  # it can filter points without a vector
KEY = "QDRANT_API_KEY"
ADDRESS = re.compile(r"https?://.*|[\w.-]+:\d+")
QUERIES_PER_REQUEST = 16
RECORDS_PER_REQUEST = 1000


class Qdrant:
    """A collection in Qdrant. `location` is the address of a server, a folder for the client's
    own store (small sets, one process), or ":memory:". `options` go to QdrantClient: api_key (or
    the variable QDRANT_API_KEY), timeout, prefer_grpc, ...

    Settings for `create`: on_disk and datatype of the vectors; all others go to
    QdrantClient.create_collection: shard_number, replication_factor, quantization_config, ...
    """

    def __init__(self, location: str, collection: str, **options: Any) -> None:
        require("qdrant-client", OLDEST_CLIENT, EXTRA)
        from qdrant_client import QdrantClient, models

        self._models = models
        self._name = collection
        self._remote = ADDRESS.fullmatch(location) is not None
        self.place = f"qdrant at {location}, collection {collection!r}"
        self._conditions = Conditions(
            models,
            range=models.Range,
            has_id=lambda points: models.HasIdCondition(has_id=points),
            is_empty=lambda key: models.IsEmptyCondition(is_empty=models.PayloadField(key=key)),
            place=self.place,
        )
        if self._remote:
            url = location if "://" in location else f"http://{location}"
            key = options.pop("api_key", None) or os.environ.get(KEY)
            # versions are compared below, with a better message
            options = {"check_compatibility": False, "url": url, "api_key": key, **options}
        elif location == ":memory:":
            options["location"] = location
        else:
            options["path"] = location
        with self._told():
            try:
                self._client = QdrantClient(**options)
            except TypeError as error:
                raise InputError(f"{self.place}: options: {first_line(error)}") from None
            if self._remote:
                self._check_version()

    def _check_version(self) -> None:
        found = str(self._client.info().version)
        if older(found, OLDEST_SERVER):
            raise EngineError(
                f"{self.place}: the server is Qdrant {found}; expected {OLDEST_SERVER} or newer: "
                "upgrade it"
            )

    def exists(self) -> bool:
        with self._told():
            return bool(self._client.collection_exists(self._name))

    def create(self, dim: int, settings: Mapping[str, Any]) -> None:
        models, rest = self._models, dict(settings)
        vectors = {name: rest.pop(name) for name in ("on_disk", "datatype") if name in rest}
        multi = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        with self._told():
            try:
                made = {
                    # no HNSW graph: candidates are found by their means
                    CODES: models.VectorParams(
                        size=dim,
                        distance=models.Distance.DOT,
                        multivector_config=multi,
                        hnsw_config=models.HnswConfigDiff(m=0),
                        **vectors,
                    ),
                    MEAN: models.VectorParams(size=dim, distance=models.Distance.DOT, **vectors),
                }
                self._client.create_collection(self._name, vectors_config=made, **rest)
            except (TypeError, AssertionError) as error:
                raise InputError(f"{self.place}: settings: {first_line(error)}") from None
            if self._remote:
                self._client.create_payload_index(self._name, TERMS, field_schema="integer")

    def dim(self) -> int:
        with self._told():
            vectors = self._client.get_collection(self._name).config.params.vectors
        found = vectors if isinstance(vectors, dict) else {}
        if CODES not in found or MEAN not in found or found[CODES].multivector_config is None:
            raise EngineError(f"{self.place}: not made by glie; choose another name")
        return int(found[CODES].size)

    def read_header(self) -> bytes | None:
        with self._told():
            first = self._client.retrieve(self._name, [0], with_payload=[HEADER, PARTS])
            if not first:
                return None
            parts = range(1, int((first[0].payload or {}).get(PARTS, 1)))
            rest = self._client.retrieve(self._name, parts, with_payload=[HEADER]) if parts else []
        rest.sort(key=lambda point: point.id)
        return header_of([point.payload for point in (*first, *rest)], self.place)

    def write_header(self, header: bytes) -> None:
        with self._told():
            # the first part says how many there are, so it is written last
            for number, payload in reversed(list(enumerate(header_parts(header)))):
                point = self._models.PointStruct(id=number, vector={}, payload=payload)
                self._client.upsert(self._name, [point])

    def count(self) -> int:
        pages = self._models.Filter(must=[self._models.HasVectorCondition(has_vector=CODES)])
        with self._told():
            found = self._client.count(self._name, count_filter=pages, exact=False)
        return int(found.count)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        pages = self._models.Filter(must=[self._models.HasVectorCondition(has_vector=CODES)])
        offset = None
        while True:
            with self._told():
                found, offset = self._client.scroll(
                    self._name,
                    scroll_filter=pages,
                    limit=RECORDS_PER_REQUEST,
                    offset=offset,
                    with_payload=["id", "metadata"],
                )
            yield from ((point.payload["id"], point.payload["metadata"]) for point in found)
            if offset is None:
                return

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        points = [point_id(page_id) for page_id in ids]
        with self._told():
            found = self._client.retrieve(self._name, points, with_payload=["id", "digest"])
        return {point.payload["id"]: point.payload["digest"] for point in found}

    def put(self, rows: Sequence[Row]) -> None:
        for some in in_steps(rows):
            points = [
                self._models.PointStruct(
                    id=point_id(row.entry.id),
                    vector={CODES: row.vectors.tolist(), MEAN: row.mean.tolist()},
                    payload=payload_of(row.entry),
                )
                for row in some
            ]
            with self._told():
                self._client.upsert(self._name, points)

    def delete(self, ids: Sequence[str]) -> None:
        points = self._models.PointIdsList(points=[point_id(page_id) for page_id in ids])
        with self._told():
            self._client.delete(self._name, points)

    def optimize(self) -> None:
        """Do nothing: a server optimises by itself."""

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        models, allowed = self._models, self._conditions.restriction(among)
        # the client's local store always scores every point, and warns if asked to
        params = models.SearchParams(exact=True) if self._remote and prefetch is None else None
        requests = []
        for vectors in queries:
            first = None
            if prefetch is not None:
                mean = vectors.mean(axis=0).tolist()
                first = models.Prefetch(query=mean, using=MEAN, limit=prefetch, filter=allowed)
            requests.append(
                models.QueryRequest(
                    prefetch=first,
                    query=vectors.tolist(),
                    using=CODES,
                    filter=allowed,
                    limit=count,
                    params=params,
                    with_payload=list(PAYLOAD),
                )
            )
        found = []
        for at in range(0, len(requests), QUERIES_PER_REQUEST):
            some = requests[at : at + QUERIES_PER_REQUEST]
            with self._told():
                found += self._client.query_batch_points(self._name, some)
        return [[entry_of(point.payload, self.place) for point in one.points] for one in found]

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the client raises into one line with the remedy."""
        import httpx  # the client's own
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except GlieError:
            raise
        except ResponseHandlingException as error:
            said = first_line(error.source)
            if isinstance(error.source, httpx.TransportError):
                what = f"cannot be reached ({said}); start the server, or give its right address"
            else:
                what = f"no answer of Qdrant's ({said}); give the address of a Qdrant server"
            raise EngineError(f"{self.place}: {what}") from None
        except UnexpectedResponse as error:
            if error.status_code in (401, 403):
                raise EngineError(
                    f"{self.place}: the server refuses the API key; give one that may do this as "
                    f"api_key, --api-key or in the variable {KEY}"
                ) from None
            raise EngineError(f"{self.place}: {_reason(error)}") from None
        except Exception as error:
            raise EngineError(f"{self.place}: {first_line(error)}") from None


def _reason(error: Any) -> str:
    """The server's message about a request that it refused."""
    try:
        said = error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        said = error.reason_phrase
    return f"the server answers {error.status_code}: {said}"
