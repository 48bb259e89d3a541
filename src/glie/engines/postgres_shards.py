"""Tables of pages in PostgreSQL, also divided over other servers through postgres_fdw.

Each shard has a table of the same name with its own key and indexes. On the coordinator it is a
foreign table, a partition by the hash of the id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from glie.engines.postgres_errors import shown, told_as
from glie.storage import digest_of

VECTOR = "CREATE EXTENSION IF NOT EXISTS vector"
ROWS_PER_FETCH = 5000  # from a shard
ROWS_PER_INSERT = 500  # to a shard


def make_table(connection: Any, name: str, columns: Any) -> None:
    """A table of pages, and its indexes over ids and terms."""
    from psycopg import sql

    table = sql.Identifier(name)
    connection.execute(sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY (id))").format(table, columns))
    connection.execute(sql.SQL("CREATE INDEX ON {} USING gin (terms)").format(table))


def divide(
    connection: Any,
    name: str,
    shards: Sequence[str],
    columns: Any,
    how: Mapping[str, Any],
    place: str,
) -> None:
    """Make the partitions of the table `name`, one on each shard, of the same columns. Errors of a
    shard name it, as a shard of `place`."""
    import psycopg
    from psycopg import sql

    connection.execute("CREATE EXTENSION IF NOT EXISTS postgres_fdw")
    made = sql.SQL(
        "CREATE FOREIGN TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {}) "
        "SERVER {} OPTIONS (schema_name {}, table_name {})"
    )
    with ExitStack() as stack:  # the shards commit together, at the end
        for number, address in enumerate(shards):
            with told_as(f"{place}, shard {shown(address)}"):
                there = stack.enter_context(psycopg.connect(address, **_for_shard(address, how)))
                there.execute(VECTOR)
                make_table(there, name, columns)
                schema = there.execute("SELECT current_schema()").fetchone()
            server = _server(connection, address)
            partition = sql.Identifier(f"{name}_{number}"), sql.Identifier(name)
            share = sql.Literal(len(shards)), sql.Literal(number)
            table = sql.Literal(schema[0] if schema else "public"), sql.Literal(name)
            connection.execute(made.format(*partition, *share, sql.Identifier(server), *table))


def _for_shard(address: str, how: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the coordinator that a shard takes too: not its password, and none that the
    address of the shard gives itself."""
    from psycopg.conninfo import conninfo_to_dict

    own = {"password", *conninfo_to_dict(address)}
    return {key: value for key, value in how.items() if key not in own}


def _server(connection: Any, address: str) -> str:
    """The name of a foreign server for an address, which is made if it is not there."""
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict

    parts = {key: str(value) for key, value in conninfo_to_dict(address).items()}
    user = {key: parts.pop(key) for key in ("user", "password") if key in parts}
    name = f"glie_{digest_of([address.encode()], bits=128)[:16]}"
    options = {
        **parts,
        "extensions": "vector",  # so that a shard sorts by distance itself
        "fetch_size": str(ROWS_PER_FETCH),
        "batch_size": str(ROWS_PER_INSERT),
        "async_capable": "true",
    }
    made = sql.SQL("CREATE SERVER IF NOT EXISTS {} FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({})")
    connection.execute(made.format(sql.Identifier(name), _listed(options)))
    mapped = sql.SQL("CREATE USER MAPPING IF NOT EXISTS FOR CURRENT_USER SERVER {} OPTIONS ({})")
    connection.execute(mapped.format(sql.Identifier(name), _listed(user)))
    return name


def _listed(options: Mapping[str, str]) -> Any:
    from psycopg import sql

    pairs = (
        sql.SQL("{} {}").format(sql.Identifier(key), sql.Literal(value))
        for key, value in options.items()
    )
    return sql.SQL(", ").join(pairs)
