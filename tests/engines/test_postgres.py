"""What is PostgreSQL's own: transactions, the pool, refusals, shards, a server that is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import glie
from glie import engines
from glie.engines import Collection
from glie.engines.base import COMPACT, MULTIVECTOR
from glie.engines.postgres import Postgres
from glie.engines.postgres_errors import shown
from tests.conftest import make_arrays
from tests.engines.conftest import Server
from tests.engines.test_contract import COUNT, assert_same, make_index, queries


@pytest.fixture
def index(tmp_path: Path) -> glie.Index:
    return make_index(tmp_path)


@pytest.fixture
def address(postgres: Callable[[], str]) -> str:
    return postgres()


@pytest.fixture
def engine(address: str) -> Iterator[Postgres]:
    made = engines.connect("postgres", address, "reports")
    assert isinstance(made, Postgres)
    yield made
    made.close()


def test_a_document_comes_and_goes_as_a_whole(
    engine: Postgres, index: glie.Index, address: str
) -> None:
    pages, _ = engines.export(index, engine)
    rows = pages.rows(index.codec.compress(glie.Pages(make_arrays(3, seed=8))), None)
    broken = rows[2]._replace(
        entry=rows[2].entry._replace(digest="00"), mean=np.ones(3, np.float32)
    )
    with pytest.raises(glie.EngineError, match="expected 16 dimensions, not 3"):
        pages.put([rows[0], rows[1], broken])
    assert len(pages) == COUNT
    with psycopg.connect(address) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = reader.execute("SELECT count(*) FROM reports").fetchone()
        pages.put(rows)
        assert reader.execute("SELECT count(*) FROM reports").fetchone() == before == (COUNT,)
    assert len(pages) == COUNT + 3


def test_threads_share_a_pool(address: str, index: glie.Index) -> None:
    engine = engines.connect("postgres", address, "reports", pool_size=2)
    pages, _ = engines.export(index, engine)
    expected = index.search(queries())
    with pages, ThreadPoolExecutor(6) as threads:
        for found in threads.map(lambda _: pages.search(queries()), range(12)):
            assert_same(found, expected)


def test_many_means_have_an_index(
    index: glie.Index, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address += "%20-cenable_seqscan%3Doff%20-cenable_sort%3Doff"  # so few are scanned otherwise
    engine = engines.connect("postgres", address, "reports")
    monkeypatch.setattr("glie.engines.postgres.ROWS_PER_INDEX", COUNT)
    monkeypatch.setattr("glie.engines.postgres.ROWS_PER_LIST", 10)
    pages, _ = engines.export(index, engine)
    assert engines.export(index, engine)[1].pages_unchanged == COUNT  # nor is it made again
    with psycopg.connect(address) as connection:
        query = "SELECT indexdef FROM pg_indexes WHERE indexname = 'reports_means'"
        (made,) = connection.execute(query).fetchone() or ("",)
    assert "USING ivfflat (mean halfvec_ip_ops) WITH (lists='4')" in made
    # it probes enough lists, and filters do not make it find less
    for where in (None, {"even": True}):
        found = pages.search(queries(), prefetch=COUNT, where=where)
        assert_same(found, index.search(queries(), where=where))
    with psycopg.connect(address) as connection:
        query = "EXPLAIN SELECT id FROM reports ORDER BY mean <#> %s LIMIT 9"
        plan = connection.execute(query, (str([1.0] * 16),)).fetchall()
    assert "Index Scan using reports_means" in str(plan)
    pages.close()


def test_replaced_rows_take_no_space(engine: Postgres, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    codes, metadata = next(index.stored())
    engine.optimize()
    before = engine.stored_bytes()
    for _ in range(20):
        pages.upsert(codes, metadata)
        engine.optimize()
    assert engine.stored_bytes() < 3 * before  # of 21 times


def test_words_of_the_metadata(engine: Postgres, index: glie.Index) -> None:
    pages, _ = engines.export(index, engine)
    text = "to_tsvector('simple', metadata ->> 'document')"
    native = f"{text} @@ websearch_to_tsquery('simple', '1.pdf')"
    found = pages.search(queries(), filter=native)
    assert_same(found, index.search(queries(), where={"document": "1.pdf"}))
    with pytest.raises(glie.EngineError, match='column "pages" does not exist'):
        pages.search(queries(), filter="pages = 1")
    with pytest.raises(glie.InputError, match="filter: expected SQL, found dict"):
        pages.search(queries(), filter={"page": 1})


def test_settings(index: glie.Index, address: str) -> None:
    engine = engines.connect("postgres", address, 'it\'s "one"')
    pages, _ = engines.export(index, engine, settings={"datatype": "float32"})
    assert_same(pages.search(queries(), prefetch=COUNT), index.search(queries()))
    other = engines.connect("postgres", address, "other")
    for settings, said in (
        ({"datatype": "int3"}, "datatype: expected float32 or float16"),
        ({"shards": "postgresql://x"}, "shards: expected a list of addresses"),
        ({"shard_number": 1}, "settings: shard_number unknown; expected datatype, shards"),
    ):
        with pytest.raises(glie.InputError, match=said):
            other.create(16, COMPACT, settings)
    with pytest.raises(glie.InputError, match="layout: PostgreSQL has compact only"):
        other.create(16, MULTIVECTOR, {})
    assert not other.exists()
    with pytest.raises(glie.InputError, match="name of at most 56 bytes"):
        engines.connect("postgres", address, "x" * 57)
    pages.close()
    other.close()


def test_tables_of_others_are_left_alone(index: glie.Index, address: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE reports (id text)")
        connection.execute("INSERT INTO reports VALUES ('a')")
    engine = engines.connect("postgres", address, "reports")
    for use in (lambda: engines.export(index, engine), lambda: Collection.open(engine)):
        with pytest.raises(glie.EngineError, match="not made by glie"):
            use()
    engine.close()


def test_servers_that_cannot_be_asked(address: str) -> None:
    with pytest.raises(glie.EngineError, match=r"127\.0\.0\.1:9.*cannot be reached .*start the"):
        engines.connect("postgres", "postgresql://u:secret@127.0.0.1:9/x", "reports")
    with pytest.raises(
        glie.EngineError, match=r"role .nobody. does not exist; give a user"
    ) as error:
        engines.connect("postgres", address.replace("postgres@", "nobody:secret@"), "reports")
    assert "secret" not in str(error.value)
    for where in (
        "host=127.0.0.1 port=9 password=secret",
        "postgresql://127.0.0.1:9/x?password=secret",
    ):
        with pytest.raises(glie.EngineError, match=r"cannot be reached") as error:
            engines.connect("postgres", where, "reports")
        assert "secret" not in str(error.value)
    with pytest.raises(glie.InputError, match=r"address like postgresql://user@host:5432/database"):
        engines.connect("postgres", "http://127.0.0.1:5432", "reports")
    with pytest.raises(glie.InputError, match=r"invalid .*option .*nonsense"):
        engines.connect("postgres", address, "reports", nonsense=1)


def test_a_user_who_may_not_write(engine: Postgres, index: glie.Index, address: str) -> None:
    engines.export(index, engine)
    with psycopg.connect(address) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader")
        grant = f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader"
        connection.execute(grant)
    reader = engines.connect("postgres", address.replace("postgres@", "reader@"), "reports")
    with Collection.open(reader) as pages:
        assert_same(pages.search(queries()), index.search(queries()))
        with pytest.raises(glie.EngineError, match=r"permission denied .*give a user who may do"):
            pages.delete(index.ids[:1])


@pytest.fixture(scope="module")
def cluster(servers: Callable[[], Server]) -> tuple[Server, list[Server]]:
    """A coordinator and two shards."""
    return servers(), [servers(), servers()]


def test_a_cluster_of_three(cluster: tuple[Server, list[Server]], tmp_path: Path) -> None:
    """Hits, filters and changes are those of an index; a shard that is killed is missed, and
    found again when it is back, with all that was committed."""
    coordinator, shards = cluster
    index = make_index(tmp_path)
    settings: dict[str, Any] = {"shards": [shard.url for shard in shards]}
    engine = engines.connect("postgres", coordinator.url, "reports", timeout=5)
    pages, report = engines.export(index, engine, settings=settings)
    assert report.pages_uploaded == len(pages) == COUNT
    shares = []
    for shard in shards:
        with psycopg.connect(shard.url) as connection:
            (share,) = connection.execute("SELECT count(*) FROM reports").fetchone() or (0,)
            shares.append(share)
    assert sum(shares) == COUNT
    assert min(shares) > COUNT // 5
    assert engines.export(index, engine)[1].pages_unchanged == COUNT
    for where in (None, {"even": True}, {"page": {">=": 3, "<": 9}}):
        for prefetch in (None, COUNT):
            found = pages.search(queries(), where=where, prefetch=prefetch)
            assert_same(found, index.search(queries(), where=where))

    first = index.ids[0]
    new = glie.Pages([*make_arrays(1, seed=5), *make_arrays(1, seed=6)], ids=[first, "new"])
    index.add(new, [{"page": -1}, {"page": -2}], replacing=[first])
    pages.upsert(new, [{"page": -1}, {"page": -2}])
    assert_same(pages.search(queries()), index.search(queries()))

    shards[0].kill()
    with pytest.raises(glie.EngineError, match=r"reached .*start the server"):
        pages.search(queries())
    with pytest.raises(glie.EngineError):  # and nothing of it is kept by the other shard
        pages.upsert(glie.Pages(make_arrays(12, seed=3), ids=[f"lost{i}" for i in range(12)]))
    shards[0].start()
    assert_same(pages.search(queries(), top=COUNT + 20), index.search(queries(), top=COUNT + 20))
    assert_same(pages.search(queries(), prefetch=COUNT), index.search(queries()))

    coordinator.kill()
    with pytest.raises(glie.EngineError, match="cannot be reached"):
        pages.search(queries())
    coordinator.start()
    assert_same(pages.search(queries()), index.search(queries()))
    pages.close()
    again = engines.connect("postgres", coordinator.url, "again")
    settings["shards"].append("postgresql://postgres@127.0.0.1:9/postgres")
    with pytest.raises(glie.EngineError, match="cannot be reached"):
        again.create(16, COMPACT, settings)
    assert not again.exists()  # nor on the shards that could be reached:
    again.create(16, COMPACT, {"shards": settings["shards"][:2]})
    again.close()


def test_a_shard_gets_its_own_password_alone(
    cluster: tuple[Server, list[Server]], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, shards = cluster
    engine = engines.connect("postgres", coordinator.url, "own", password="ours", sslmode="prefer")
    connect, asked = psycopg.connect, list[dict[str, Any]]()

    def seen(address: str, **options: Any) -> Any:
        asked.append(options)
        return connect(address, **options)

    monkeypatch.setattr(psycopg, "connect", seen)
    urls = [shards[0].url, shards[1].url.replace("postgres@", "postgres:theirs@")]
    engine.create(16, COMPACT, {"shards": urls})
    assert [sorted(options) for options in asked] == [["connect_timeout", "sslmode"]] * 2
    engine.close()


def test_passwords_are_not_shown() -> None:
    for address, said in (
        ("postgresql://u:a@h:1/x", "postgresql://u@h:1/x"),
        (
            "postgresql://h/x?password=a&sslmode=require",
            "postgresql://h/x?password=...&sslmode=require",
        ),
        ("host=h password='a b\\' c' user=u", "host=h password=... user=u"),
        ("password = a\\ b host=h", "password = ... host=h"),
        ("host=h passfile=f", "host=h passfile=f"),
    ):
        assert shown(address) == said


def test_what_an_administrator_must_allow(
    cluster: tuple[Server, list[Server]], tmp_path: Path
) -> None:
    coordinator, shards = cluster
    with psycopg.connect(coordinator.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN")
        connection.execute("CREATE DATABASE bare")
    bare = coordinator.url.removesuffix("postgres") + "bare"
    with psycopg.connect(bare) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO plain")
    engine = engines.connect("postgres", bare.replace("postgres@", "plain@"), "mine")
    with pytest.raises(glie.EngineError, match="an administrator says CREATE EXTENSION vector in"):
        engine.create(16, COMPACT, {})
    with psycopg.connect(bare) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE EXTENSION postgres_fdw")
    settings = {"shards": [shard.url for shard in shards]}
    with pytest.raises(glie.EngineError, match="says GRANT USAGE ON FOREIGN DATA WRAPPER"):
        engine.create(16, COMPACT, settings)
    with psycopg.connect(bare) as connection:
        connection.execute("GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO plain")
    nobody = [shard.url.replace("postgres@", "nobody@") for shard in shards]
    with pytest.raises(glie.EngineError, match=r"shard postgresql://nobody@.*role .* does not"):
        engine.create(16, COMPACT, {"shards": nobody})
    assert not engine.exists()
    engine.close()
    index = make_index(tmp_path)
    taken = engines.connect("postgres", bare, "reports")  # of the test before, on a shard
    with pytest.raises(glie.EngineError, match="already exists; choose another name, or drop"):
        engines.export(index, taken, settings=settings)
    taken.close()
    owner = engines.connect("postgres", bare, "divided")
    engines.export(index, owner, settings=settings)
    owner.close()
    with psycopg.connect(bare) as connection:
        connection.execute("GRANT SELECT ON divided, glie_collections TO plain")
    reader = engines.connect("postgres", bare.replace("postgres@", "plain@"), "divided")
    with (
        Collection.open(reader) as pages,
        pytest.raises(glie.EngineError, match="each user of the shards needs one: CREATE USER"),
    ):
        pages.search(queries())
