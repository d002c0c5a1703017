"""A real PostgreSQL: one broker at a time, a connection that is lost, a server that is away, and what its texts hold.

What the catalog promises over any SQL database is in test_catalog.py, test_rebuild.py and test_rebuild_forced.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import text

from tests.catalog.catalog_stage import CatalogStage, bound, check, declared, home, names, rows_in_sql
from tests.catalog.postgres_server import PostgresServer, postgres_server
from warren.base.errors import Locked, Refused, WarrenError
from warren.base.threads import SystemThreads
from warren.catalog import exchanges, queues, users, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.postgres import LOCK, PostgresPlace
from warren.catalog.queues import QueueRow
from warren.catalog.rows import RowWriter
from warren.catalog.sql import SqlUnavailable, parsed
from warren.testing.fakes import SeededRandom


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.make_database()


@pytest.fixture
def stage(postgres: PostgresServer, database: str) -> Iterator[CatalogStage]:
    new_stage = CatalogStage(postgres.place(database))
    new_stage.begin()
    yield new_stage
    check(new_stage.catalog, new_stage.database)
    new_stage.stop()


# -- one broker at a time ------------------------------------------------------------------------------------------


def test_a_second_broker_on_one_database_is_refused_by_name(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    """Its log may be a fork of the first one's: nothing but the lock keeps it out."""
    declared(stage.catalog, home(stage.catalog).id, "orders")
    second = CatalogStage(postgres.place(database, lock_wait_ms=50), seed=2)
    with pytest.raises(Locked, match=r"locked by another broker: warren \(backend \d+, from this machine\)") as caught:
        second.begin()
    second.database.close()
    assert "name another database with --catalog" in caught.value.hint
    assert names(stage.catalog) == ["orders"]


def test_brokers_on_two_databases_of_one_server_do_not_disturb_each_other(
    postgres: PostgresServer, stage: CatalogStage
) -> None:
    other = CatalogStage(postgres.place(postgres.make_database(), lock_wait_ms=50), seed=2)
    declared(other.begin(), home(other.catalog).id, "theirs")
    declared(stage.catalog, home(stage.catalog).id, "ours")
    assert (names(stage.catalog), names(other.catalog)) == (["ours"], ["theirs"])
    other.stop()


def test_a_lock_that_is_released_soon_is_waited_for(postgres: PostgresServer, database: str) -> None:
    """As by the connection of a broker that has just died."""
    holder = psycopg.connect(postgres.url(database), autocommit=True)
    holder.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
    waiting = CatalogStage(postgres.place(database, lock_wait_ms=60_000))
    query: list[Catalog] = []
    thread = SystemThreads().start("broker", lambda: query.append(waiting.begin()))
    while not postgres.fetch_all("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert thread.is_alive()
    holder.close()
    thread.join()
    check(query[0], waiting.database)
    waiting.stop()


# -- a connection that is lost -------------------------------------------------------------------------------------


def test_a_connection_that_is_lost_while_idle_is_made_again(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    here = home(stage.catalog)
    declared(stage.catalog, here.id, "a")
    assert postgres.cut_off(database) == 1
    assert names(stage.catalog) == ["a"]
    assert postgres.cut_off(database) == 1
    declared(stage.catalog, here.id, "b")
    assert names(stage.catalog) == ["a", "b"]


def test_a_connection_lost_in_mid_change_leaves_nothing_of_it(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    """Nothing of it was in the log: the change fails, and may be repeated."""
    here = home(stage.catalog)

    def work(writer: RowWriter) -> QueueRow:
        queues.declare(writer, here.id, "first")
        postgres.cut_off(database)
        return queues.declare(writer, here.id, "second")

    with pytest.raises(SqlUnavailable, match="does not answer"):
        stage.catalog.change(work)
    assert names(stage.catalog) == []
    check(stage.catalog, stage.database)
    declared(stage.catalog, here.id, "first")
    assert names(stage.catalog) == ["first"]


def test_a_connection_lost_between_the_log_and_the_commit_is_nobodys_trouble(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    """Rule 16: the log has it, so SQL gets it by another connection before the answer."""
    here = home(stage.catalog)
    queue, epoch = stage.catalog.submit(lambda writer: queues.declare(writer, here.id, "orders"))
    postgres.cut_off(database)
    stage.catalog.settle(epoch)
    assert stage.catalog.applied >= epoch
    assert stage.catalog.queue_ids() == {queue.id}


def test_a_change_in_an_epoch_whose_connection_was_lost_writes_nothing(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    here = home(stage.catalog)
    _, epoch = stage.catalog.submit(lambda writer: queues.declare(writer, here.id, "a"))
    postgres.cut_off(database)
    with pytest.raises(SqlUnavailable):
        stage.catalog.submit(lambda writer: queues.declare(writer, here.id, "b"))
    stage.catalog.settle(epoch)
    assert names(stage.catalog) == ["a"]


def test_what_another_broker_did_to_sql_meanwhile_is_repaired(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    """SQL may have been put back to an earlier day while we were cut off: a new connection makes sure."""
    here = home(stage.catalog)
    declared(stage.catalog, here.id, "orders")
    postgres.cut_off(database)
    postgres.fetch_all("DELETE FROM warren.queues", database)
    declared(stage.catalog, here.id, "more")
    assert names(stage.catalog) == ["more", "orders"]


def test_a_broker_that_lost_its_lock_to_another_changes_nothing(
    postgres: PostgresServer, database: str, stage: CatalogStage
) -> None:
    here = home(stage.catalog)
    stage.catalog.close()
    stage.place = postgres.place(database, lock_wait_ms=50)
    stage.again_without_catalog()
    postgres.cut_off(database)
    with psycopg.connect(postgres.url(database), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        with pytest.raises(Locked, match="locked by another broker"):
            declared(stage.catalog, here.id, "orders")
        with pytest.raises(Locked):
            names(stage.catalog)
        other.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))  # a backend that ends holds it for a moment more
    assert names(stage.catalog) == []


def test_a_locked_table_is_reported_as_locked(postgres: PostgresServer, database: str, stage: CatalogStage) -> None:
    here = home(stage.catalog)
    stage.catalog.close()
    stage.place = postgres.place(database, lock_wait_ms=50)
    stage.again_without_catalog()
    with psycopg.connect(postgres.url(database)) as other:
        other.execute("LOCK TABLE warren.queues IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Locked, match="locked by another process"):
            declared(stage.catalog, here.id, "orders")
    declared(stage.catalog, here.id, "orders")


# -- a server that is away, or refuses the connection ----------------------------------------------------------------


def test_a_server_that_stops_and_restarts_is_waited_for_by_its_users() -> None:
    with postgres_server() as server:
        stage = CatalogStage(server.place(server.make_database()))
        here = home(stage.begin())
        _, epoch = stage.catalog.submit(lambda writer: queues.declare(writer, here.id, "kept"))
        server.stop(is_killed=True)
        for _ in range(2):
            stage.catalog.settle(epoch)  # the log has it
            assert "does not answer" in stage.catalog.problems[0]
        with pytest.raises(SqlUnavailable, match="does not answer") as caught:
            declared(stage.catalog, here.id, "never")
        assert "start PostgreSQL" in caught.value.hint
        with pytest.raises(SqlUnavailable):
            names(stage.catalog)
        with pytest.raises(SqlUnavailable):
            stage.catalog.close()
        with pytest.raises(SqlUnavailable):
            stage.again_without_catalog()
        server.start()
        assert names(stage.again_without_catalog()) == ["kept"]
        check(stage.catalog, stage.database)
        stage.stop()


@pytest.mark.parametrize(
    ("connect", "family", "message", "hint"),
    [
        ("postgresql://ann:secret@127.0.0.1:1/x", SqlUnavailable, "does not answer: .*refused", "start PostgreSQL"),
        (
            "postgresql://ann:secret@/x?host=/nowhere",
            SqlUnavailable,
            "does not answer: .*No such file",
            "start PostgreSQL",
        ),
        ("postgresql://postgres:secret@/nowhere?host={host}", Refused, 'database "nowhere" does not exist', "createdb"),
        ("postgresql://nobody:secret@/postgres?host={host}", Refused, 'role "nobody" does not exist', "createuser"),
    ],
)
def test_an_unreachable_server_is_named_with_what_to_do(
    postgres: PostgresServer, connect: str, family: type[WarrenError], message: str, hint: str
) -> None:
    host = postgres.url("x").rpartition("host=")[2]
    place = PostgresPlace(parsed(connect.format(host=host)), SeededRandom(1))
    with pytest.raises(family, match=message) as caught:
        place.open()
    assert type(caught.value) is family
    assert hint in caught.value.hint
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "secret" not in f"{chain!r} {chain}"
        chain = chain.__cause__ or chain.__context__


def test_a_user_without_the_right_to_create_a_schema_is_refused_and_may_use_an_existing_one(
    postgres: PostgresServer, database: str
) -> None:
    postgres.fetch_all(f"CREATE ROLE poor_{database} LOGIN")
    place = PostgresPlace(parsed(postgres.url(database, f"poor_{database}")), SeededRandom(1))
    with pytest.raises(Refused, match="permission denied for database") as caught:
        place.open()
    assert "GRANT CREATE" in caught.value.hint
    postgres.fetch_all(f"CREATE SCHEMA warren AUTHORIZATION poor_{database}", database)
    stage = CatalogStage(place)
    declared(stage.begin(), home(stage.catalog).id, "orders")
    check(stage.catalog, stage.database)
    stage.stop()


# -- what is in it -------------------------------------------------------------------------------------------------


def test_it_keeps_to_its_own_schema(postgres: PostgresServer, database: str) -> None:
    """Tables of the same names may belong to another program."""
    postgres.fetch_all(
        "CREATE TABLE public.queues (x INTEGER); CREATE TABLE public.schema_version (version INTEGER)", database
    )
    stage = CatalogStage(postgres.place(database))
    declared(stage.begin(), home(stage.catalog).id, "orders")
    stage.stop()
    assert postgres.fetch_all("SELECT count(*) FROM public.queues", database) == [(0,)]
    assert postgres.fetch_all("SELECT name FROM warren.queues", database) == [("orders",)]


def test_setting_aside_renames_and_drops_nothing(postgres: PostgresServer, database: str) -> None:
    place = postgres.place(database)
    place.set_aside()
    query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'warren') ORDER BY 1"
    assert postgres.fetch_all(query, database) == [("warren",)], "there was nothing to put away"
    stage = CatalogStage(place)
    declared(stage.begin(), home(stage.catalog).id, "orders")
    stage.stop()
    place.set_aside()
    [(aside,)] = postgres.fetch_all(query, database)
    assert postgres.fetch_all(f"SELECT name FROM {aside}.queues", database) == [("orders",)]
    assert names(stage.begin()) == ["orders"]
    check(stage.catalog, stage.database)
    stage.stop()


def test_postgresql_need_not_sync_for_us(stage: CatalogStage) -> None:
    with stage.catalog.reading() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "off"
        assert connection.execute(text("SHOW application_name")).scalar_one() == "warren"


def test_names_of_any_letters_and_255_bytes_are_distinguished_and_in_one_order(stage: CatalogStage) -> None:
    """The order is ours: a server's locale may have another."""
    here = home(stage.catalog)
    query = sorted(
        ["a", "A", "ä", "a\u0308", "B", "b", "Z", "_", "ß", "ss", "😀" * 63 + "abc", "x" * 255, "%", "'", '"']
    )
    for name in reversed(query):
        declared(stage.catalog, here.id, name)
        stage.catalog.change(lambda writer, name=name: users.put(writer, name, "", ""))  # type: ignore[misc]
        stage.catalog.change(lambda writer, name=name: vhosts.declare(writer, name))  # type: ignore[misc]
        stage.catalog.change(lambda writer, name=name: exchanges.declare(writer, here.id, name))  # type: ignore[misc]
    seen = rows_in_sql(stage.catalog)
    with stage.again().reading() as connection:
        assert [each.name for each in queues.every(connection)] == query
        assert [each.name for each in users.every(connection)] == query
        assert [each.name for each in vhosts.every(connection)] == sorted(["/", *query])
        ours = [each.name for each in exchanges.every(connection, here.id)]
    assert ours == sorted(ours)
    assert rows_in_sql(stage.catalog) == seen


def test_arguments_hold_what_a_text_of_postgresql_cannot(stage: CatalogStage) -> None:
    query = {"zero": "a\0b", "bytes": b"\0\xff", "nested": [{"\0": "\0"}], "big": "ü" * 200_000}
    here = home(stage.catalog)
    queue = declared(stage.catalog, here.id, "orders", arguments=query)
    bound(stage.catalog, "amq.headers", queue, "k" * 255, arguments=query)
    with stage.again().reading() as connection:
        assert queues.by_id(connection, queue.id) == queue
