"""What PostgreSQL and its drivers raise, as one line with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from glie.engines.base import first_line
from glie.errors import EngineError, GlieError

EXTENSION = re.compile(r'permission denied to create extension "(\w+)"')
WRAPPER = re.compile("permission denied for foreign-data wrapper")
TYPE = re.compile(r'type "\w+" does not exist')
REFUSED = re.compile("authentication failed|password|pg_hba|role .* does not exist")
# as a parameter of a URL, and in the form "host=... password='...'"
SECRET = re.compile(r"(password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s&])+)", re.IGNORECASE)
UNREACHABLE = ("08", "57P")  # classes of errors: no connection, and a server that stops or starts


@contextmanager
def told_as(place: str) -> Iterator[None]:
    """Turn what psycopg raises into one line that names the place and the remedy."""
    import psycopg
    from psycopg import errors
    from psycopg_pool import PoolTimeout

    try:
        yield
    except GlieError:
        raise
    except Exception as error:
        said, state = first_line(error), getattr(error, "sqlstate", None)
        gone = isinstance(error, (PoolTimeout, psycopg.OperationalError))
        missing = errors.UndefinedFile, errors.FeatureNotSupported
        if name := EXTENSION.search(said):
            remedy = f"; an administrator says CREATE EXTENSION {name[1]} in that database, once"
        elif WRAPPER.search(said):
            remedy = "; an administrator says GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO "
            remedy += "this user"
        elif isinstance(error, errors.InsufficientPrivilege) or REFUSED.search(said):
            remedy = "; give a user who may do this, and the password in the address or in "
            remedy += "PGPASSWORD"
        elif "user mapping not found" in said:
            remedy = "; each user of the shards needs one: CREATE USER MAPPING"
        elif isinstance(error, errors.DuplicateTable):
            remedy = "; choose another name, or drop that table"
        elif isinstance(error, missing) or TYPE.search(said):
            remedy = "; it needs pgvector 0.8 or newer, and postgres_fdw for shards"
        elif gone and (state is None or state.startswith(UNREACHABLE)):
            said = f"cannot be reached ({said})"
            remedy = "; start the server, or give its right address"
        else:
            remedy = ""
        raise EngineError(f"{place}: {said}{remedy}") from None


def shown(address: str) -> str:
    """An address without its passwords."""
    without = re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", address)
    return SECRET.sub(r"\1...", without)
