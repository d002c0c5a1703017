"""What the catalog promises, over every SQL database that may stand behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError

from tests.catalog.catalog_stage import CatalogStage, bound, check, declared, home, names, rows_in_sql
from warren.base.errors import Damage, Refused
from warren.base.ids import QueueId
from warren.catalog import bindings, exchanges, permissions, queues, users, vhosts
from warren.catalog.catalog import Catalog, DeletedObjects
from warren.catalog.rebuild import remove_leftovers
from warren.catalog.rows import Inequivalent, RowKind, RowWriter, row_of
from warren.catalog.schema import bindings as binding_rows
from warren.catalog.schema import queues as queue_rows
from warren.catalog.sql import sql_error


@pytest.fixture
def catalog(stage: CatalogStage) -> Catalog:
    return stage.catalog


def test_what_was_declared_is_there_after_a_restart(stage: CatalogStage) -> None:
    """HS-02: queues, exchanges, bindings and vhosts are in SQL, and stay."""
    here = home(stage.catalog)
    declared_row = stage.catalog.change(lambda writer: exchanges.declare(writer, here.id, "events", "topic"))
    queue = declared(stage.catalog, here.id, "orders", arguments={"x-max-length": 7})
    binding = bound(stage.catalog, "events", queue, "order.*", arguments={"x": b"\xff"})
    catalog = stage.again()
    with catalog.reading() as connection:
        assert vhosts.every(connection) == [here]
        assert exchanges.get(connection, here.id, "events") == declared_row
        assert queues.every(connection) == [queue]
        assert bindings.every(connection) == [binding]
    assert not catalog.problems


def test_a_change_stands_when_the_log_has_it_and_sql_fails_to_commit(
    stage: CatalogStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 16: the log decides. SQL is brought up before the next change, and is reported as a problem until then."""
    here, sql = home(stage.catalog), stage.catalog._sql
    errors = [OperationalError("COMMIT", None, Exception("disk I/O error"))]
    commit = sql.commit

    def failing() -> None:
        if errors:
            with sql_error(sql.where):
                raise errors.pop()
        commit()

    monkeypatch.setattr(sql, "commit", failing)
    queue = declared(stage.catalog, here.id, "orders")
    assert not errors
    assert "behind the log" in stage.catalog.problems[0]
    bound(stage.catalog, "amq.topic", queue, "order.*")
    assert not stage.catalog.problems
    check(stage.catalog, stage.database)


def test_a_new_vhost_has_the_exchanges_that_clients_expect(catalog: Catalog) -> None:
    here = home(catalog)
    with catalog.reading() as connection:
        found = {each.name: each.type for each in exchanges.every(connection, here.id)}
        assert all(each.durable and not each.auto_delete for each in exchanges.every(connection))
        assert [each.name for each in exchanges.every(connection) if each.internal] == ["amq.rabbitmq.trace"]
    assert found == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
        "amq.topic": "topic",
    }


def test_a_vhost_can_be_described_anew_and_declared_twice(catalog: Catalog) -> None:
    here = home(catalog)
    catalog.change(lambda writer: vhosts.describe(writer, here.id, "the shop", ["sales"]))
    assert home(catalog).description == "the shop"
    assert home(catalog).tags == ("sales",)


def test_an_exchange_that_belongs_to_its_vhost_is_not_deleted(catalog: Catalog) -> None:
    here = home(catalog)
    for name in ("", "amq.topic"):
        with catalog.reading() as connection:
            exchange = exchanges.get(connection, here.id, name)
        assert exchange is not None
        with pytest.raises(Refused, match="belongs to its vhost"):
            catalog.change(lambda writer, id_=exchange.id: exchanges.delete(writer, id_))  # type: ignore[misc]


def test_declaring_the_same_twice_is_declaring_it_once(catalog: Catalog) -> None:
    here = home(catalog)
    declared_as = {"durable": False, "auto_delete": True, "arguments": {"x-expires": 10, "x": [1, {"y": None}]}}
    first = declared(catalog, here.id, "orders", **declared_as)
    applied = catalog.applied
    assert declared(catalog, here.id, "orders", **declared_as) == first
    assert catalog.applied == applied, "nothing was written"
    assert catalog.change(lambda writer: exchanges.declare(writer, here.id, "amq.topic", "topic")).name == "amq.topic"


@pytest.mark.parametrize(
    ("declared_as", "differences"),
    [
        ({"durable": False}, "durable true; it was declared with durable false"),
        ({"exclusive": True}, "exclusive false; it was declared with exclusive true"),
        ({"auto_delete": True}, "auto_delete false; it was declared with auto_delete true"),
        ({"arguments": {"x-expires": "10"}}, 'argument x-expires 10; it was declared with argument x-expires "10"'),
        ({"arguments": {"x-expires": 10, "y": 1}}, "argument y none; it was declared with argument y 1"),
        ({"arguments": {}}, "argument x-expires 10; it was declared with argument x-expires none"),
    ],
)
def test_declaring_another_queue_by_the_same_name_is_refused_and_names_the_difference(
    catalog: Catalog, declared_as: dict[str, Any], differences: str
) -> None:
    here = home(catalog)
    declared(catalog, here.id, "orders", arguments={"x-expires": 10})
    with pytest.raises(Inequivalent) as caught:
        declared(catalog, here.id, "orders", **({"arguments": {"x-expires": 10}} | declared_as))
    assert caught.value.what == f"queue 'orders' exists with {differences}"


def test_declaring_another_exchange_by_the_same_name_is_refused(catalog: Catalog) -> None:
    here = home(catalog)
    with pytest.raises(Inequivalent, match='type "topic"; it was declared with type "fanout"'):
        catalog.change(lambda writer: exchanges.declare(writer, here.id, "amq.topic", "fanout"))
    with pytest.raises(Inequivalent, match="internal false; it was declared with internal true"):
        catalog.change(lambda writer: exchanges.declare(writer, here.id, "amq.topic", "topic", internal=True))


def test_names_are_unique_per_vhost_only(catalog: Catalog) -> None:
    here, there = home(catalog), catalog.change(lambda writer: vhosts.declare(writer, "other"))
    one, other = declared(catalog, here.id, "orders"), declared(catalog, there.id, "orders")
    assert one.id != other.id
    with catalog.reading() as connection:
        assert queues.get(connection, there.id, "orders") == other
        assert queues.every(connection, here.id) == [one]


def test_sql_enforces_that_names_are_unique(catalog: Catalog) -> None:
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    image = {"vhost_id": here.id, "name": "orders", "durable": True, "exclusive": False, "auto_delete": False}
    with pytest.raises(IntegrityError):
        catalog.change(lambda writer: writer.insert(RowKind.QUEUE, image))
    assert catalog.queue_ids() == {queue.id}


def test_sql_enforces_that_both_ends_of_a_binding_are_there(catalog: Catalog) -> None:
    """HS-05: without a lookup first."""
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    with catalog.reading() as connection:
        source = exchanges.get(connection, here.id, "amq.topic")
    assert source is not None
    catalog.change(lambda writer: queues.delete(writer, queue.id))
    with pytest.raises(Refused, match=r"'amq\.topic' cannot be bound to 'orders': one of them does not exist"):
        catalog.change(lambda writer: bindings.bind(writer, source, queue, "k"))
    image = {"vhost_id": here.id, "source_id": source.id, "queue_id": queue.id, "exchange_id": None}
    with pytest.raises(IntegrityError), catalog.reading() as connection:
        connection.execute(insert(binding_rows), row_of(RowKind.BINDING, 5, image))
    with pytest.raises(IntegrityError), catalog.reading() as connection:
        connection.execute(insert(binding_rows), row_of(RowKind.BINDING, 5, image | {"queue_id": None}))


def test_a_binding_does_not_cross_vhosts(catalog: Catalog) -> None:
    """HS-05"""
    here, there = home(catalog), catalog.change(lambda writer: vhosts.declare(writer, "other"))
    queue = declared(catalog, there.id, "orders")
    with catalog.reading() as connection:
        source = exchanges.get(connection, here.id, "amq.topic")
    assert source is not None
    with pytest.raises(Refused, match="or is in another vhost"):
        catalog.change(lambda writer: bindings.bind(writer, source, queue))


def test_sql_lets_bindings_go_with_their_queue(catalog: Catalog) -> None:
    """HS-05: by the foreign key, not by us."""
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    bound(catalog, "amq.topic", queue)
    with catalog.reading() as connection:
        connection.execute(delete(queue_rows).where(queue_rows.c.id == queue.id))
        assert connection.execute(select(binding_rows)).all() == []


def test_deleting_a_queue_takes_its_bindings_along(stage: CatalogStage) -> None:
    catalog = stage.catalog
    here = home(catalog)
    queue, other = declared(catalog, here.id, "orders"), declared(catalog, here.id, "kept")
    ours = [bound(catalog, "amq.topic", queue, key).id for key in ("a", "b")]
    remaining = bound(catalog, "amq.topic", other)
    assert sorted(catalog.change(lambda writer: queues.delete(writer, queue.id))) == ours
    check(catalog, stage.database)
    with stage.again().reading() as connection:
        assert bindings.every(connection) == [remaining]
        assert queues.every(connection) == [other]


def test_deleting_an_exchange_takes_the_bindings_from_and_to_it_along(stage: CatalogStage) -> None:
    catalog = stage.catalog
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    hub = catalog.change(lambda writer: exchanges.declare(writer, here.id, "hub", "fanout"))
    remaining = bound(catalog, "amq.topic", queue)
    bound(catalog, "hub", queue)
    with catalog.reading() as connection:
        source = exchanges.get(connection, here.id, "amq.topic")
    assert source is not None
    into = catalog.change(lambda writer: bindings.bind(writer, source, hub, "all"))
    assert (into.queue_id, into.exchange_id) == (None, hub.id)
    assert len(catalog.change(lambda writer: exchanges.delete(writer, hub.id))) == 2
    check(catalog, stage.database)
    with catalog.reading() as connection:
        assert bindings.every(connection, here.id) == [remaining]


def test_binding_twice_is_binding_once_and_arguments_distinguish_bindings(catalog: Catalog) -> None:
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    one, same = (bound(catalog, "amq.headers", queue, "k", arguments={"x-match": "all"}) for _ in range(2))
    other = bound(catalog, "amq.headers", queue, "k", arguments={"x-match": "any"})
    third = bound(catalog, "amq.headers", queue, "l", arguments={"x-match": "all"})
    assert one == same
    assert len({one.id, other.id, third.id}) == 3


def test_what_is_not_bound_can_be_unbound(catalog: Catalog) -> None:
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")
    bound(catalog, "amq.topic", queue, "a")

    def unbind(writer: RowWriter, key: str) -> bool:
        source = exchanges.get(writer.connection, here.id, "amq.topic")
        assert source is not None
        return bindings.unbind(writer, source, queue, key)

    assert [catalog.change(lambda writer, key=key: unbind(writer, key)) for key in "aab"] == [True, False, False]  # type: ignore[misc]
    with catalog.reading() as connection:
        assert bindings.every(connection) == []


def test_the_default_exchange_takes_no_bindings(catalog: Catalog) -> None:
    queue = declared(catalog, home(catalog).id, "orders")
    with pytest.raises(Refused, match="default exchange"):
        bound(catalog, "", queue, "orders")


def test_deleting_a_vhost_takes_all_that_is_in_it_along(stage: CatalogStage) -> None:
    catalog = stage.catalog
    here, there = home(catalog), catalog.change(lambda writer: vhosts.declare(writer, "other"))
    queue = declared(catalog, there.id, "orders")
    bound(catalog, "amq.topic", queue)
    before = rows_in_sql(catalog)
    catalog.change(lambda writer: vhosts.delete(writer, there.id))
    left = {name: image for name, image in before.items() if there.id not in (image.get("vhost_id"), name[1])}
    assert rows_in_sql(stage.again()) == left
    assert names(stage.catalog) == []
    assert home(stage.catalog) == here


def test_a_change_that_is_refused_half_way_leaves_nothing_of_it(stage: CatalogStage) -> None:
    catalog = stage.catalog
    here = home(catalog)
    declared(catalog, here.id, "there", durable=False)

    def work(writer: RowWriter) -> None:
        queues.declare(writer, here.id, "first")
        queues.declare(writer, here.id, "there")

    with pytest.raises(Inequivalent):
        catalog.change(work)
    assert names(catalog) == ["there"]
    check(catalog, stage.database)
    assert names(stage.again()) == ["there"]


def test_a_deleted_queue_is_distinguished_from_an_unknown_one(catalog: Catalog) -> None:
    """HS-06, C-21: an unknown id means deleted, unless the catalog cannot have known it."""
    here = home(catalog)
    queue, other = declared(catalog, here.id, "orders"), declared(catalog, here.id, "kept")
    catalog.change(lambda writer: queues.delete(writer, queue.id))
    with pytest.raises(DeletedObjects, match=f"queue {queue.id} was deleted"):
        catalog.queue(queue.id)
    assert catalog.queue(other.id) == other
    assert catalog.queue_ids() == {other.id}
    with pytest.raises(Damage, match="the catalog is older than the log"):
        catalog.queue(QueueId(other.id + 1000))


def test_an_id_is_never_given_twice(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    seen: set[int] = set()
    for _ in range(3):
        queue = declared(stage.catalog, here.id, "orders")
        assert queue.id not in seen
        assert queue.id > max(seen, default=here.id)
        seen.add(queue.id)
        stage.catalog.change(lambda writer, id_=queue.id: queues.delete(writer, id_))  # type: ignore[misc]
        stage.again()


def test_a_start_removes_what_does_not_outlive_it(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    passing = declared(stage.catalog, here.id, "passing", durable=False)
    mine = declared(stage.catalog, here.id, "mine", exclusive=True)
    remaining = declared(stage.catalog, here.id, "kept")
    stage.catalog.change(lambda writer: exchanges.declare(writer, here.id, "short", durable=False))
    bound(stage.catalog, "short", remaining)
    bound(stage.catalog, "amq.topic", passing)
    catalog = stage.again()
    assert catalog.change(remove_leftovers) == {passing.id, mine.id}
    assert names(catalog) == ["kept"]
    with catalog.reading() as connection:
        assert exchanges.get(connection, here.id, "short") is None
        assert bindings.every(connection) == []


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "a\0b", "\ud800"])
def test_a_name_that_amqp_cannot_carry_is_refused(catalog: Catalog, name: str) -> None:
    here = home(catalog)
    with pytest.raises(Refused):
        declared(catalog, here.id, name)
    assert names(catalog) == []


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_text_that_not_every_sql_database_holds_is_refused(catalog: Catalog, text: str) -> None:
    """Wherever it stands: a row that only some of them take would be in the log for good."""
    here = home(catalog)
    user = catalog.change(lambda writer: users.put(writer, "ann", "", ""))
    for work in (
        lambda writer: vhosts.describe(writer, here.id, text),
        lambda writer: vhosts.declare(writer, "other", text),
        lambda writer: users.put(writer, "bob", text, "scrypt"),
        lambda writer: permissions.put(writer, user.id, here.id, text, "", ""),
    ):
        with pytest.raises(Refused, match=r"zero byte|UTF-8"):
            catalog.change(work)
    with catalog.reading() as connection:
        assert [each.name for each in vhosts.every(connection)] == ["/"]
        assert users.every(connection) == [user]
        assert permissions.every(connection) == []


def test_a_refused_step_does_not_end_the_rest_of_a_change(catalog: Catalog) -> None:
    """PostgreSQL would take along all that was done before, were it not for a savepoint."""
    here = home(catalog)
    queue = declared(catalog, here.id, "orders")

    def work(writer: RowWriter) -> None:
        queues.declare(writer, here.id, "before")
        source = exchanges.get(writer.connection, here.id, "amq.topic")
        assert source is not None
        with pytest.raises(Refused, match="cannot be bound"):
            bindings.bind(writer, source, replace(queue, id=QueueId(77)))
        queues.declare(writer, here.id, "behind")

    catalog.change(work)
    assert names(catalog) == ["before", "behind", "orders"]


def test_a_queue_in_a_vhost_that_is_not_there_is_refused(catalog: Catalog) -> None:
    here = home(catalog)
    catalog.change(lambda writer: vhosts.delete(writer, here.id))
    with pytest.raises(Refused, match="there is none"):
        declared(catalog, here.id, "orders")
    with pytest.raises(Refused, match="there is none"):
        catalog.change(lambda writer: exchanges.declare(writer, here.id, "orders"))


def test_arguments_too_large_for_the_log_are_refused(catalog: Catalog) -> None:
    here = home(catalog)
    with pytest.raises(Refused, match="bytes in the catalog"):
        declared(catalog, here.id, "orders", arguments={"x": "y" * (1 << 20)})
    assert names(catalog) == []


def test_deleting_what_is_not_there_is_refused(catalog: Catalog) -> None:
    for work in (vhosts.delete, exchanges.delete, queues.delete):
        with pytest.raises(Refused, match="there is no"):
            catalog.change(lambda writer, work=work: work(writer, 77))  # type: ignore[misc]
