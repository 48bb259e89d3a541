"""LanceDB: an embedded table, in a folder or on object storage.

A row is a page. The row with an empty id, which no page can have, holds the header; in the layout
COMPACT its `rest` says whether the first export has been finished.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from glie.engines.base import (
    COMPACT,
    MULTIVECTOR,
    Candidates,
    Entry,
    Restriction,
    Row,
    bound_of,
    in_steps,
    require,
    told_as,
    untranslated,
)
from glie.engines.entries import packed_sizes, terms_for, unpacked_sizes
from glie.errors import EngineError, InputError
from glie.filters import And, AnyOf, Compare, Exists, Filter, Not, Or, Prefix
from glie.kernels.maxsim import maxsim
from glie.kernels.top_k import top_k
from glie.pages import Floats, Queries

EXTRA = "lancedb"
OLDEST = "0.34"
KEY = "LANCEDB_API_KEY"
CODES, MEAN = "codes", "page"
READ = ["id", "code", "norms", "counts", "evidence", "metadata", "digest"]
COMPACT_READ = ["id", "code", "rest", "metadata", "digest"]
FINISHED = b"finished"  # `rest` of the header
PAGES = "id != ''"
ROWS_PER_OPTIMIZE = 500_000  # fewer new rows are scanned without an index
# fewer means are scanned without an index, by layout
ROWS_PER_INDEX = {MULTIVECTOR: 100_000, COMPACT: 4_000_000}
ROWS_PER_LIST = 8192  # of that index
FEWEST_PROBES = 20  # LanceDB's own number
PROBED = 4  # times the lists that would hold the candidates, were all equally near
REFINED = 4  # times the wanted pages are compared exactly after the index of means


class LanceDB:
    """A table in the database at `location`: a folder, or an address like s3://bucket/folder.
    `version` opens an older version of the table, read-only. The other options go to
    lancedb.connect: storage_options, api_key (or the variable LANCEDB_API_KEY), ...

    A setting for `create`: datatype of the vectors (float32 or float16; in the layout COMPACT
    float16 unless given).
    """

    def __init__(
        self, location: str, collection: str, *, version: int | None = None, **options: Any
    ) -> None:
        require("lancedb", OLDEST, EXTRA)
        import lancedb
        import pyarrow

        self._arrow = pyarrow
        self._name = collection
        self._version = version
        self._opened: Any = None
        self._made = False  # here: its unfinished versions can be removed
        self._kind: str | None = None  # its layout, once known
        self._unoptimized = 0  # rows since the indexes were last built
        self.place = f"lancedb at {location}, table {collection!r}"
        if location.startswith("db://"):
            options.setdefault("api_key", os.environ.get(KEY))
        local = "://" not in location
        if local and Path(location).is_file():
            raise EngineError(f"{self.place}: a file; expected a folder, or an address")
        with told_as(self.place):
            try:
                self._database = lancedb.connect(location, **options)
            except TypeError as error:
                raise InputError(f"{self.place}: options: {error}") from None

    @property
    def table(self) -> Any:
        """The table of LanceDB."""
        if self._opened is None:
            with told_as(self.place):
                self._opened = self._database.open_table(self._name)
                if self._version is not None:
                    self._opened.checkout(self._version)
        return self._opened

    @property
    def version(self) -> int:
        """The table's version. It grows with every change, and can be opened again later."""
        with told_as(self.place):
            return int(self.table.version)

    def exists(self) -> bool:
        if self._opened is not None:
            return True
        try:
            _ = self.table
        except EngineError as error:
            if "not found" in str(error):
                return False
            raise
        return True

    def create(self, dim: int, layout: str, settings: Mapping[str, Any]) -> None:
        rest = dict(settings)
        kind = str(rest.pop("datatype", "float16" if layout == COMPACT else "float32"))
        if kind not in ("float32", "float16"):
            raise InputError(f"setting datatype: expected float32 or float16, found {kind!r}")
        if rest:
            raise InputError(
                f"{self.place}: settings: {', '.join(rest)} unknown; expected datatype"
            )
        pa = self._arrow
        vector = pa.list_(pa.float16() if kind == "float16" else pa.float32(), dim)
        if layout == COMPACT:
            digest, codes = pa.binary(16), []
            sizes = [pa.field("rest", pa.binary())]
        else:
            digest, codes = pa.string(), [pa.field(CODES, pa.list_(vector))]
            sizes = [
                pa.field("norms", pa.list_(pa.float32())),
                pa.field("counts", pa.list_(pa.int32())),
                pa.field("evidence", pa.binary()),
            ]
        schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                *codes,
                pa.field(MEAN, vector),
                pa.field("code", pa.binary()),
                *sizes,
                pa.field("metadata", pa.json_(pa.utf8())),
                pa.field("terms", pa.list_(pa.int64())),
                pa.field("digest", digest),
            ]
        )
        with told_as(self.place):
            self._opened = self._database.create_table(self._name, schema=schema)
        self._made = True

    def dim(self) -> int:
        self.layout()
        return int(self.table.schema.field(MEAN).type.list_size)

    def layout(self) -> str:
        if self._kind is None:
            schema, found = self.table.schema, set(self.table.schema.names)
            if found >= {MEAN, *COMPACT_READ}:
                self._kind = COMPACT
            elif found >= {CODES, MEAN, *READ}:
                self._kind = MULTIVECTOR
            fixed = self._arrow.types.is_fixed_size_list
            if self._kind is None or not fixed(schema.field(MEAN).type):
                raise EngineError(f"{self.place}: not made by glie; choose another name")
        return self._kind

    def read_header(self) -> bytes | None:
        self.dim()  # raises if it is not a table of glie
        with told_as(self.place):
            found = self.table.search().where("id = ''").select(["code"]).limit(1).to_list()
        return bytes(found[0]["code"]) if found else None

    def write_header(self, header: bytes) -> None:
        self._write_header(header, b"")

    def _write_header(self, header: bytes, rest: bytes) -> None:
        nowhere = np.zeros(self.dim(), np.float32)  # LanceDB refuses rows without vectors
        row = {"id": "", "code": header, "rest": rest, CODES: nowhere[None], MEAN: nowhere}
        self._store([row])

    def count(self) -> int:
        with told_as(self.place):
            return int(self.table.count_rows(PAGES))

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with told_as(self.place):
            for batch in self.table.search().where(PAGES).select(["id", "metadata"]).to_batches():
                for page_id, text in zip(*(column.to_pylist() for column in batch), strict=True):
                    yield page_id, json.loads(text)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        with told_as(self.place):
            query = self.table.search().where(_one_of(ids)).select(["id", "digest"])
            rows = query.limit(len(ids)).to_list()
        return {row["id"]: _hex(row["digest"]) for row in rows}

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        for some in in_steps(rows):
            self._store(
                [
                    {
                        **_columns(row.entry, self.layout()),
                        "metadata": json.dumps(row.entry.metadata, ensure_ascii=False),
                        CODES: row.vectors,
                        MEAN: row.mean,
                    }
                    for row in some
                ]
            )
            self._unoptimized += len(some)
            if self._unoptimized >= ROWS_PER_OPTIMIZE:
                self._optimize()
        if leaving:
            self.delete(leaving)

    def _store(self, rows: list[dict[str, Any]]) -> None:
        """Write rows in one commit, replacing those with the same ids."""
        if self._version is not None:
            raise EngineError(f"{self.place}: version {self._version} of it is for reading only")
        with told_as(self.place):
            data = self._columns(rows)
            merge = self.table.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(data)

    def _columns(self, rows: list[dict[str, Any]]) -> Any:
        pa, columns = self._arrow, []
        schema = self.table.schema
        for field in schema:
            values: list[Any] = [row.get(field.name) for row in rows]
            if field.name == MEAN:
                columns.append(_vectors(pa, np.stack(values), field.type))
            elif field.name == CODES:
                offsets = pa.array(np.cumsum([0, *map(len, values)]), pa.int32())
                inner = _vectors(pa, np.concatenate(values), field.type.value_type)
                columns.append(pa.ListArray.from_arrays(offsets, inner))
            elif field.name == "metadata":
                kind = pa.json_(pa.utf8())
                columns.append(pa.ExtensionArray.from_storage(kind, pa.array(values, pa.utf8())))
            else:
                columns.append(pa.array(values, field.type))
        return pa.table(columns, names=schema.names)

    def delete(self, ids: Sequence[str]) -> None:
        with told_as(self.place):
            self.table.delete(_one_of(ids))

    def optimize(self) -> None:
        if self.layout() == MULTIVECTOR:
            self._optimize()
        else:
            with told_as(self.place):
                query = self.table.search().where("id = ''").select(["code", "rest"])
                header = query.limit(1).to_list()[0]
            # an export that was interrupted is finished by another process
            self._made = first = header["rest"] != FINISHED
            self._optimize()
            if first:
                self._write_header(header["code"], FINISHED)
                self._optimize()  # away with the versions before
        self._made = False

    def _optimize(self) -> None:
        """Merge files and build indexes over ids and terms and, for many pages, over means."""
        from lancedb.index import BTree, IvfSq, LabelList

        with told_as(self.place):
            had = {index.columns[0] for index in self.table.list_indices()}
            wanted: dict[str, Any] = {"id": BTree(), "terms": LabelList()}
            rows = self.table.count_rows()
            if rows >= ROWS_PER_INDEX[self.layout()]:
                lists = max(1, rows // ROWS_PER_LIST)
                wanted[MEAN] = IvfSq(distance_type="dot", num_partitions=lists)
            for column, config in wanted.items():
                if column not in had:
                    self.table.create_index(column, config=config)
            self.table.optimize(
                cleanup_older_than=timedelta(milliseconds=1) if self._made else None
            )
        self._unoptimized = 0

    def candidates(self, means: Floats, count: int | None, among: Restriction) -> list[Candidates]:
        with told_as(self.place):
            if count is None:
                query = self.table.search().where(self._filter(among)).select(["id", "code"])
                return [_candidates(query.to_arrow())] * len(means)
            return [self._candidates(mean, count, among) for mean in means]

    def _candidates(self, mean: Floats, count: int, among: Restriction) -> Candidates:
        query = self.table.search(mean, vector_column_name=MEAN)
        return _candidates(self._asked(query, among, count, ["id", "code"]))

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        with told_as(self.place):
            query = self.table.search().where(_one_of(ids)).select(COMPACT_READ)
            return [_entry(row) for row in query.limit(len(ids)).to_list()]

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        return [self._nearest(vectors, count, prefetch, among) for vectors in queries]

    def _nearest(
        self, vectors: Floats, count: int, prefetch: int | None, among: Restriction
    ) -> list[Entry]:
        with told_as(self.place):
            if prefetch is None:
                query = self.table.search(vectors, vector_column_name=CODES).bypass_vector_index()
                found = self._asked(query, among, count, READ)
            else:
                mean = vectors.mean(axis=0)
                query = self.table.search(mean, vector_column_name=MEAN).refine_factor(REFINED)
                found = self._asked(query, among, prefetch, [*READ, CODES])
                found = found.take(top_k(_maxsim(vectors, found[CODES]), count))
            return [_entry(row) for row in found.select(READ).to_pylist()]

    def _asked(self, query: Any, among: Restriction, count: int, columns: list[str]) -> Any:
        query = query.distance_type("dot").where(self._filter(among), prefilter=True)
        query = query.nprobes(max(FEWEST_PROBES, -(-PROBED * count // ROWS_PER_LIST)))
        return query.limit(count).select([*columns, "_distance"]).to_arrow()

    def _filter(self, among: Restriction) -> str:
        """A filter in SQL."""
        parts = [PAGES]
        if among.ids is not None:
            parts.append(_one_of(among.ids))
        if among.where is not None:
            parts.append(self._condition(among.where))
        if among.native is not None:
            parts.append(f"({among.native})")
        return " AND ".join(parts)

    def _condition(self, where: Filter) -> str:
        match where:
            case And(parts):
                return f"({' AND '.join(map(self._condition, parts)) or 'TRUE'})"
            case Or(parts):
                return f"({' OR '.join(map(self._condition, parts)) or 'FALSE'})"
            case Not(part):
                return f"(NOT {self._condition(part)})"
            case AnyOf():
                terms = ", ".join(map(str, terms_for(where)))
                return f"array_has_any(terms, [{terms}])" if terms else "FALSE"
            case Compare():
                # NULL if it is no number; without coalesce, NOT of it would be NULL as well
                number = f"TRY_CAST({self._field(where)} AS DOUBLE)"
                bound = bound_of(where, self.place)
                return f"coalesce({number} {where.operator} {bound!r}, FALSE)"
            case Exists():
                return f"({self._field(where)} IS NOT NULL)"
            case Prefix(text=text):
                start = json.dumps(text, ensure_ascii=False)[:-1]
                if start[1:] != text:
                    raise untranslated(
                        self.place, where, "takes no prefixes with quotes or control characters"
                    )
                return f"coalesce(starts_with({self._field(where)}, {_quoted(start)}), FALSE)"
        raise TypeError(f"a filter of an unknown kind: {where!r}")

    def _field(self, where: Compare | Exists | Prefix) -> str:
        """A field of the metadata in SQL: its JSON text, or NULL."""
        if not where.key:
            raise untranslated(self.place, where, "takes no empty names")
        path = f"$.{json.dumps(where.key, ensure_ascii=False)}"
        return f"json_extract(metadata, {_quoted(path)})"

    def close(self) -> None:
        self._opened = None


def _vectors(pa: Any, rows: Floats, kind: Any) -> Any:
    flat = pa.array(rows.reshape(-1).astype(kind.value_type.to_pandas_dtype()))
    return pa.FixedSizeListArray.from_arrays(flat, kind.list_size)


def _maxsim(query: Floats, codes: Any) -> Floats:
    """The MaxSim scores of a column. LanceDB's own MaxSim cannot be limited to some pages."""
    pages = codes.combine_chunks()
    rows = pages.flatten()
    flat = rows.flatten().to_numpy(zero_copy_only=False).reshape(-1, query.shape[1])
    lengths = pages.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    scores: Floats = maxsim(query, np.array([0, len(query)]), flat, ends - lengths, ends)[0]
    return scores


def _columns(entry: Entry, layout: str) -> dict[str, Any]:
    columns = entry._asdict()
    if layout == COMPACT:
        return {
            **columns,
            "rest": packed_sizes(entry),
            "digest": bytes.fromhex(entry.digest),
        }
    return {**columns, "evidence": entry.residual}


def _entry(row: Mapping[str, Any]) -> Entry:
    if "rest" in row:
        norms, counts, residual = unpacked_sizes(row["rest"])
    else:
        norms, counts, residual = row["norms"], row["counts"], row["evidence"]
    metadata, digest = json.loads(row["metadata"]), _hex(row["digest"])
    return Entry(row["id"], row["code"], norms, counts, residual, metadata, [], digest)


def _hex(digest: str | bytes) -> str:
    return digest if isinstance(digest, str) else digest.hex()


def _candidates(found: Any) -> Candidates:
    return Candidates(found["id"].to_pylist(), found["code"].to_pylist())


def _one_of(ids: Sequence[str]) -> str:
    return f"id IN ({', '.join(map(_quoted, ids))})"


def _quoted(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"
