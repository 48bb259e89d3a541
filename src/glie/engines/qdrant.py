"""Qdrant through its client: a server or cluster, or the client's own local store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    older,
    require,
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
from glie.errors import EngineError, GlieError, InputError
from glie.pages import Floats, Queries

EXTRA = "qdrant"
OLDEST_CLIENT = "1.20"  # its local store accepts points without vectors
OLDEST_SERVER = "1.13"  # it can filter points without a vector
TURBO_SERVER = "1.19"  # the first with vectors of 4 bits
KEY = "QDRANT_API_KEY"
ADDRESS = re.compile(r"https?://.*|[\w.-]+:\d+")
QUERIES_PER_REQUEST = 16
RECORDS_PER_REQUEST = 1000
CANDIDATES_PER_REQUEST = 20_000  # of all its queries: 7 MB of JSON at 6 anchors of 2 bits


class Qdrant:
    """A collection in Qdrant. `location` is the address of a server, a folder for the client's
    own store (small sets, one process), or ":memory:". `options` go to QdrantClient: api_key (or
    the variable QDRANT_API_KEY), timeout, prefer_grpc, ...

    Settings for `create`: on_disk and datatype of the vectors (in the layout COMPACT, unless given,
    turbo4, or float16 before Qdrant 1.19); all others go to QdrantClient.create_collection:
    shard_number, replication_factor, quantization_config, ...
    """

    def __init__(self, location: str, collection: str, **options: Any) -> None:
        require("qdrant-client", OLDEST_CLIENT, EXTRA)
        from qdrant_client import QdrantClient, models

        self._models = models
        self._name = collection
        self._remote = ADDRESS.fullmatch(location) is not None
        self._layout: str | None = None  # once known
        self._smallest = "float16"  # type of vectors that is close enough
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
        if not older(found, TURBO_SERVER):
            self._smallest = "turbo4"

    def exists(self) -> bool:
        with self._told():
            return bool(self._client.collection_exists(self._name))

    def create(self, dim: int, layout: str, settings: Mapping[str, Any]) -> None:
        models, rest = self._models, dict(settings)
        if layout == COMPACT:
            rest.setdefault("datatype", self._smallest)
        params: dict[str, Any] = {
            name: rest.pop(name) for name in ("on_disk", "datatype") if name in rest
        }
        params |= {"size": dim, "distance": models.Distance.DOT}
        flat = models.HnswConfigDiff(m=0)  # no graph
        multi = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        with self._told():
            try:
                if layout == COMPACT:
                    # for so many candidates the scan of all means is faster than a graph
                    made = {MEAN: models.VectorParams(**params, hnsw_config=flat)}
                else:
                    made = {
                        CODES: models.VectorParams(
                            **params, multivector_config=multi, hnsw_config=flat
                        ),
                        MEAN: models.VectorParams(**params),
                    }
                self._client.create_collection(self._name, vectors_config=made, **rest)
            except (TypeError, AssertionError) as error:
                raise InputError(f"{self.place}: settings: {first_line(error)}") from None
            if self._remote:
                self._client.create_payload_index(self._name, TERMS, field_schema="integer")

    def dim(self) -> int:
        return int(self._vectors()[MEAN].size)

    def layout(self) -> str:
        if self._layout is None:
            self._layout = MULTIVECTOR if CODES in self._vectors() else COMPACT
        return self._layout

    def _vectors(self) -> dict[str, Any]:
        with self._told():
            vectors = self._client.get_collection(self._name).config.params.vectors
        found = vectors if isinstance(vectors, dict) else {}
        codes = found.get(CODES)
        if MEAN not in found or (codes is not None and codes.multivector_config is None):
            raise EngineError(f"{self.place}: not made by glie; choose another name")
        return found

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

    def _pages(self) -> Any:
        return self._models.HasVectorCondition(has_vector=MEAN)

    def count(self) -> int:
        pages = self._models.Filter(must=[self._pages()])
        with self._told():
            found = self._client.count(self._name, count_filter=pages, exact=False)
        return int(found.count)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for payload in self._scrolled(self._models.Filter(must=[self._pages()]), "id", "metadata"):
            yield payload["id"], payload["metadata"]

    def _scrolled(self, pages: Any, *keys: str) -> Iterator[Any]:
        """Some keys of the payloads of all pages that match a filter."""
        offset = None
        while True:
            with self._told():
                found, offset = self._client.scroll(
                    self._name,
                    scroll_filter=pages,
                    limit=RECORDS_PER_REQUEST,
                    offset=offset,
                    with_payload=list(keys),
                )
            yield from (point.payload for point in found)
            if offset is None:
                return

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        points = [point_id(page_id) for page_id in ids]
        with self._told():
            found = self._client.retrieve(self._name, points, with_payload=["id", "digest"])
        return {point.payload["id"]: point.payload["digest"] for point in found}

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        layout = self.layout()
        for some in in_steps(rows):
            points = [
                self._models.PointStruct(
                    id=point_id(row.entry.id),
                    vector=vectors_of(row, layout),
                    payload=payload_of(row.entry, layout),
                )
                for row in some
            ]
            with self._told():
                self._client.upsert(self._name, points)
        if leaving:
            self.delete(leaving)

    def delete(self, ids: Sequence[str]) -> None:
        points = self._models.PointIdsList(points=[point_id(page_id) for page_id in ids])
        with self._told():
            self._client.delete(self._name, points)

    def optimize(self) -> None:
        """Do nothing: a server optimises by itself."""

    def candidates(self, means: Floats, count: int | None, among: Restriction) -> list[Candidates]:
        models, allowed = self._models, self._conditions.restriction(among)
        if count is None:
            must = [self._pages(), *([] if allowed is None else [allowed])]
            every = self._scrolled(models.Filter(must=must), "id", "code")
            return [candidates_of(every, self.place)] * len(means)
        requests = [
            models.QueryRequest(
                query=mean,
                using=MEAN,
                filter=allowed,
                limit=count,
                params=self._exact,
                with_payload=["id", "code"],
            )
            for mean in means.tolist()
        ]
        step = max(1, CANDIDATES_PER_REQUEST // count)
        return [
            candidates_of((point.payload for point in points), self.place)
            for points in self._asked(requests, step)
        ]

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        found = []
        for at in range(0, len(ids), RECORDS_PER_REQUEST):
            points = [point_id(page_id) for page_id in ids[at : at + RECORDS_PER_REQUEST]]
            with self._told():
                found += self._client.retrieve(
                    self._name, points, with_payload=list(COMPACT_PAYLOAD)
                )
        return [entry_of(point.payload, self.place) for point in found]

    @property
    def _exact(self) -> Any:
        """Search without a graph. The client's own store always does so, and warns if asked to."""
        return self._models.SearchParams(exact=True) if self._remote else None

    def _asked(self, requests: list[Any], step: int) -> list[list[Any]]:
        """The points that each request finds."""
        found = []
        for at in range(0, len(requests), step):
            with self._told():
                found += self._client.query_batch_points(self._name, requests[at : at + step])
        return [one.points for one in found]

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        models, allowed = self._models, self._conditions.restriction(among)
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
                    params=self._exact if prefetch is None else None,
                    with_payload=list(PAYLOAD),
                )
            )
        return [
            [entry_of(point.payload, self.place) for point in points]
            for points in self._asked(requests, QUERIES_PER_REQUEST)
        ]

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
