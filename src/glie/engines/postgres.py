"""PostgreSQL with pgvector: a table in a database that is there anyway.

A row is a page, in the layout COMPACT. The table HEADERS has a row a collection. With the setting
`shards` the table is divided by the hash of the id over other servers, through postgres_fdw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from glie.engines.base import (
    COMPACT,
    Candidates,
    Entry,
    Restriction,
    Row,
    first_line,
    require,
)
from glie.engines.entries import packed_sizes, unpacked_sizes
from glie.engines.postgres_errors import shown, told_as
from glie.engines.postgres_shards import VECTOR, divide, make_table
from glie.engines.sql import Condition, json_of, metadata_of, restriction
from glie.errors import EngineError, InputError
from glie.pages import Floats, Queries

EXTRA = "postgres"
OLDEST = "3.2"
MOST_NAME = 56  # bytes of a collection's name: PostgreSQL cuts names off at 63
HEADERS = "glie_collections"
CONNECTIONS = 4  # in the pool
CONNECT_SECONDS = 10
RECORDS_PER_FETCH = 1000
ROWS_PER_INDEX = 1_000_000  # fewer means are scanned without an index
ROWS_PER_LIST = 1000  # of that index
PROBED = 4  # times the lists that would hold the candidates, were all equally near
TYPES = {"float32": "vector", "float16": "halfvec"}
COLUMNS = ("id", "mean", "code", "rest", "metadata", "terms", "digest")


class Postgres:
    """A table in the database at `location`: postgresql://user@host:5432/database. `options` go to
    psycopg.connect: password (or `api_key`, or the variable PGPASSWORD), sslmode, ...; besides,
    pool_size is how many connections are kept, and timeout how many seconds one is waited for.

    Settings for `create`: datatype of the vectors (float16 or float32), and shards (a list of
    addresses of other servers).
    """

    def __init__(self, location: str, collection: str, **options: Any) -> None:
        require("psycopg", OLDEST, EXTRA)
        require("psycopg-pool", OLDEST, EXTRA)
        import psycopg
        from psycopg import sql
        from psycopg_pool import ConnectionPool

        self._psycopg, self._sql, self._name = psycopg, sql, collection
        self.place = f"postgres at {shown(location)}, table {collection!r}"
        if len(collection.encode()) > MOST_NAME or "\x00" in collection:
            raise InputError(f"{self.place}: expected a name of at most {MOST_NAME} bytes")
        if "api_key" in options:
            options["password"] = options.pop("api_key")
        seconds = options.pop("timeout", CONNECT_SECONDS)
        size = options.pop("pool_size", CONNECTIONS)
        self._how = {"connect_timeout": seconds, **options}
        self._table = sql.Identifier(collection)
        with told_as(self.place):
            try:
                psycopg.conninfo.make_conninfo(location, **self._how)
            except psycopg.ProgrammingError as error:
                raise InputError(
                    f"{self.place}: {first_line(error)}; expected an address like "
                    "postgresql://user@host:5432/database"
                ) from None
            psycopg.connect(location, **self._how).close()  # at once, and its own reason why not
        self._pool = ConnectionPool(
            location,
            kwargs=self._how,
            min_size=0,
            max_size=size,
            timeout=seconds,
            check=ConnectionPool.check_connection,  # a server that was away has closed them
            open=True,
        )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A connection; what is done with it happens as a whole, or not at all."""
        with told_as(self.place), self._pool.connection() as connection:
            yield connection

    def _fetched(self, condition: Condition, columns: str, tail: str = "", *rest: Any) -> Any:
        """The rows that match a condition, as the database sends them: in its binary form."""
        query = self._sql.SQL(f"SELECT {columns} FROM {{}} WHERE {condition.sql} {tail}")
        with self._transaction() as connection:
            return self._rows(connection, query, (*condition.parameters, *rest))

    def _rows(self, connection: Any, query: Any, parameters: tuple[Any, ...]) -> list[Any]:
        with connection.cursor(binary=True) as cursor:
            found: list[Any] = cursor.execute(query.format(self._table), parameters).fetchall()
        return found

    def exists(self) -> bool:
        with self._transaction() as connection:
            found = connection.execute("SELECT to_regclass(quote_ident(%s))", (self._name,))
            return found.fetchone()[0] is not None

    def create(self, dim: int, layout: str, settings: Mapping[str, Any]) -> None:
        rest = dict(settings)
        kind, shards = str(rest.pop("datatype", "float16")), rest.pop("shards", [])
        if layout != COMPACT:
            raise InputError(f"{self.place}: layout: PostgreSQL has {COMPACT} only")
        if kind not in TYPES:
            raise InputError(f"setting datatype: expected float32 or float16, found {kind!r}")
        if not isinstance(shards, list) or not all(isinstance(one, str) for one in shards):
            raise InputError(f"setting shards: expected a list of addresses, found {shards!r}")
        if rest:
            raise InputError(
                f"{self.place}: settings: {', '.join(rest)} unknown; expected datatype, shards"
            )
        with self._transaction() as connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {HEADERS} (name text PRIMARY KEY, header bytea)"
            )
            # a table of this name that was dropped may have left its header
            connection.execute(f"DELETE FROM {HEADERS} WHERE name = %s", (self._name,))
            connection.execute(VECTOR)
            columns = self._columns(dim, TYPES[kind])
            if shards:
                made = self._sql.SQL("CREATE TABLE {} ({}) PARTITION BY HASH (id)")
                connection.execute(made.format(self._table, columns))
                divide(connection, self._name, shards, columns, self._how, self.place)
            else:
                make_table(connection, self._name, columns)

    def _columns(self, dim: int, vector: str) -> Any:
        return self._sql.SQL(
            f"id text NOT NULL, mean {vector}({int(dim)}) NOT NULL, code bytea NOT NULL, "
            "rest bytea NOT NULL, metadata json NOT NULL, terms bigint[] NOT NULL, "
            "digest bytea NOT NULL"
        )

    def dim(self) -> int:
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT attname, atttypmod FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped "
                "AND attrelid = to_regclass(quote_ident(%s))",
                (self._name,),
            ).fetchall()
        columns = dict(found)
        if set(COLUMNS) - set(columns):
            raise EngineError(f"{self.place}: not made by glie; choose another name")
        return int(columns["mean"])

    def layout(self) -> str:
        return COMPACT

    def read_header(self) -> bytes | None:
        self.dim()  # raises if it is not a table of glie
        with self._transaction() as connection:
            if connection.execute(f"SELECT to_regclass('{HEADERS}')").fetchone()[0] is None:
                return None
            query = f"SELECT header FROM {HEADERS} WHERE name = %s"
            found = connection.execute(query, (self._name,), binary=True).fetchone()
        return None if found is None else bytes(found[0])

    def write_header(self, header: bytes) -> None:
        with self._transaction() as connection:
            connection.execute(
                f"INSERT INTO {HEADERS} VALUES (%s, %s) "
                "ON CONFLICT (name) DO UPDATE SET header = EXCLUDED.header",
                (self._name, header),
            )

    def count(self) -> int:
        return int(self._fetched(Condition("TRUE"), "count(*)")[0][0])

    def stored_bytes(self) -> int:
        """What the table takes on disk, with its indexes."""
        query = "SELECT pg_total_relation_size(to_regclass(quote_ident(%s)))"
        with self._transaction() as connection:
            return int(connection.execute(query, (self._name,)).fetchone()[0])

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        query = self._sql.SQL("SELECT id, metadata::text FROM {}").format(self._table)
        with self._transaction() as connection, connection.cursor("records") as cursor:
            cursor.itersize = RECORDS_PER_FETCH
            for page_id, text in cursor.execute(query):
                yield page_id, metadata_of(text)

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        found = self._fetched(_these(ids), "id, digest")
        return {page_id: digest.hex() for page_id, digest in found}

    def put(self, rows: Sequence[Row], leaving: Sequence[str] = ()) -> None:
        """All in one transaction: searches see all of it or nothing."""
        ids = [*(row.entry.id for row in rows), *leaving]
        with self._transaction() as connection:
            # not ON CONFLICT: tables on shards have no key over all of them
            self._delete(connection, ids)
            into = self._sql.SQL(f"COPY {{}} ({', '.join(COLUMNS)}) FROM STDIN")
            with connection.cursor() as cursor, cursor.copy(into.format(self._table)) as copy:
                for row in rows:
                    copy.write_row(_columns(row))

    def delete(self, ids: Sequence[str]) -> None:
        with self._transaction() as connection:
            self._delete(connection, ids)

    def _delete(self, connection: Any, ids: Sequence[str]) -> None:
        query = self._sql.SQL("DELETE FROM {} WHERE id = ANY(%s)")
        connection.execute(query.format(self._table), (list(ids),))

    def optimize(self) -> None:
        """Free the space of replaced rows, gather statistics and, for many pages, index the
        means."""
        with self._transaction() as connection:
            query = "SELECT relkind FROM pg_class WHERE oid = to_regclass(quote_ident(%s))"
            kind = connection.execute(query, (self._name,)).fetchone()[0]
        if kind in (b"p", "p"):  # the shards do so by themselves
            return
        if self.count() >= ROWS_PER_INDEX:
            self._index()
        with told_as(self.place):
            connection = self._pool.getconn()
            try:
                connection.autocommit = True  # VACUUM is no part of a transaction
                query = self._sql.SQL("VACUUM (ANALYZE) {}")
                connection.execute(query.format(self._table))
                connection.autocommit = False
            finally:
                self._pool.putconn(connection)

    def _index(self) -> None:
        """Make the index of means, unless it is there."""
        lists = max(1, self.count() // ROWS_PER_LIST)
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attname = 'mean' "
                "AND attrelid = to_regclass(quote_ident(%s))",
                (self._name,),
            )
            vector = found.fetchone()[0]
            made = self._sql.SQL(
                f"CREATE INDEX IF NOT EXISTS {{}} ON {{}} USING ivfflat (mean {vector}_ip_ops) "
                f"WITH (lists = {lists})"
            )
            name = self._sql.Identifier(f"{self._name}_means")
            connection.execute(made.format(name, self._table))

    def candidates(self, means: Floats, count: int | None, among: Restriction) -> list[Candidates]:
        allowed = restriction(among, self.place)
        if count is None:
            return [_candidates(self._fetched(allowed, "id, code"))] * len(means)
        query = self._sql.SQL(
            f"SELECT id, code FROM {{}} WHERE {allowed.sql} ORDER BY mean <#> %s LIMIT %s"
        )
        found = []
        with self._transaction() as connection:
            self._aim(connection, count)
            for mean in means.tolist():
                asked = (*allowed.parameters, _vector(mean), count)
                found.append(_candidates(self._rows(connection, query, asked)))
        return found

    def _aim(self, connection: Any, count: int) -> None:
        """Let the index of means, if there is one, look for so many pages."""
        probes = max(1, -(-PROBED * count // ROWS_PER_LIST))
        connection.execute(f"SET LOCAL ivfflat.probes = {min(probes, 32_768)}")
        connection.execute("SET LOCAL ivfflat.iterative_scan = relaxed_order")

    def entries(self, ids: Sequence[str]) -> list[Entry]:
        found = self._fetched(_these(ids), "id, code, rest, metadata::text, digest")
        return [self._entry(*row) for row in found]

    def _entry(self, page_id: str, code: bytes, rest: bytes, text: str, digest: bytes) -> Entry:
        try:
            norms, counts, residual = unpacked_sizes(rest)
        except ValueError as error:
            raise EngineError(
                f"{self.place}: what is stored of page {page_id!r} is not a code ({error}); export "
                "the page again"
            ) from None
        return Entry(page_id, code, norms, counts, residual, metadata_of(text), [], digest.hex())

    def nearest(
        self, queries: Queries, count: int, prefetch: int | None, among: Restriction
    ) -> list[list[Entry]]:
        raise InputError(f"{self.place}: PostgreSQL scores no codes")

    def close(self) -> None:
        self._pool.close()


def _these(ids: Sequence[str]) -> Condition:
    return Condition("id = ANY(%s)", (list(ids),))


def _columns(row: Row) -> tuple[Any, ...]:
    """The columns of a page, in order."""
    entry = row.entry
    digest, metadata = bytes.fromhex(entry.digest), json_of(entry.metadata)
    mean, rest = _vector(row.mean.tolist()), packed_sizes(entry)
    return entry.id, mean, entry.code, rest, metadata, entry.terms, digest


def _vector(numbers: list[float]) -> str:
    """A vector as pgvector reads it."""
    return f"[{','.join(map(repr, numbers))}]"


def _candidates(rows: Sequence[Any]) -> Candidates:
    return Candidates([page_id for page_id, _ in rows], [code for _, code in rows])
