"""Exchanges that go with the last binding from them: all of them, in one change, and no other."""

from __future__ import annotations

from tests.catalog.catalog_stage import CatalogStage, home
from warren.base.ids import ExchangeId
from warren.catalog import bindings, exchanges, queues
from warren.catalog.bindings import is_source, remove_unused, sources_of
from warren.catalog.rows import RowWriter


def test_an_exchange_that_lost_its_last_binding_is_deleted_and_so_on() -> None:
    stage = CatalogStage()
    catalog = stage.begin()
    vhost = home(catalog)

    def build(writer: RowWriter) -> list[exchanges.ExchangeRow]:
        queue = queues.declare(writer, vhost.id, "q")
        rows = [
            exchanges.declare(writer, vhost.id, name, auto_delete=name != "kept") for name in ("a", "b", "c", "kept")
        ]
        first, second, third, other = rows
        for source, target in ((first, second), (second, third), (other, third)):
            bindings.bind(writer, source, target)
        bindings.bind(writer, third, queue)
        return rows

    first, second, third, other = catalog.change(build)

    def unbind(writer: RowWriter) -> list[ExchangeId]:
        queue = queues.get(writer.connection, vhost.id, "q")
        assert queue is not None
        assert sources_of(writer.connection, queue=queue.id) == [third.id]
        assert sorted(sources_of(writer.connection, exchange=third.id)) == [second.id, other.id]
        assert remove_unused(writer, [third.id]) == [], "it is still used"
        bindings.unbind(writer, third, queue)
        return remove_unused(writer, [third.id])

    assert sorted(catalog.change(unbind)) == [first.id, second.id, third.id]
    with catalog.reading() as connection:
        assert not is_source(connection, other.id)
        assert bindings.every(connection, vhost.id) == []
        left = {each.name for each in exchanges.every(connection, vhost.id)}
    assert "kept" in left
    assert not left & {"a", "b", "c"}
    stage.stop()
