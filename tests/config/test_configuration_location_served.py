"""`warren serve` with locations: log in one place, catalog in PostgreSQL, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.app.test_broker_process import come_in, refused
from tests.catalog.postgres_server import postgres_server
from tests.server.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


def test_a_broker_with_its_catalog_in_postgresql(tmp_path: Path) -> None:
    """OP-02, OP-03: messages are served while PostgreSQL is unreachable. C-21: another log is refused, or forced."""
    with postgres_server() as server:
        name = server.make_database()
        store, url = tmp_path / "store", server.url(name).replace("@", ":secret@")
        where = ("--store-dir", str(store), "--catalog", url)
        with BrokerProcess(tmp_path / "data", *where) as broker, come_in(broker, "guest", "guest") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "orders", b"1", persistent, mandatory=True)
            other = come_in(broker, "guest", "guest")
            locked = refused(tmp_path / "other", "--catalog", url)
            assert "is locked by another broker: warren (backend" in locked.stderr
            server.stop(is_killed=True)
            with pytest.raises(pika.exceptions.AMQPError, match="INTERNAL_ERROR") as caught:
                come_in(broker, "guest", "guest")
            assert "postgresql" not in str(caught.value), "that is for the log"
            with pytest.raises(pika.exceptions.AMQPError, match="INTERNAL_ERROR"):
                other.channel().queue_declare("later", durable=True)
            assert "does not answer" in broker.log
            channel.basic_publish("", "orders", b"2", persistent, mandatory=True)
            server.start()
            channel.queue_declare("later", durable=True)
        assert (store / "log").is_dir()
        assert not (store / "catalog").exists()
        assert server.fetch_all("SELECT name FROM warren.queues ORDER BY name", name) == [("later",), ("orders",)]
        foreign = refused(tmp_path / "other", "--catalog", url)
        assert "which this log never was on" in foreign.stderr
        assert "--force" in foreign.stderr
        with BrokerProcess(tmp_path / "other", "--catalog", url, "--force"):
            assert server.fetch_all("SELECT count(*) FROM warren.queues", name) == [(0,)]
        with BrokerProcess(tmp_path / "data", *where, "--force") as broker, come_in(broker, "guest", "guest") as again:
            channel = again.channel()
            assert [channel.basic_get("orders", auto_ack=True)[2] for _ in range(2)] == [b"1", b"2"]
        server.stop()
        away = refused(tmp_path / "data", *where)
        assert "does not answer" in away.stderr
        assert "start PostgreSQL" in away.stderr
        for text in (locked.stderr, foreign.stderr, away.stderr, broker.log):
            assert "secret" not in text


def test_without_a_data_directory_a_store_must_be_named(tmp_path: Path) -> None:
    """OP-04"""
    result = refused(tmp_path / "data", "--no-data-dir")
    assert "contradict" in result.stderr
    assert not (tmp_path / "data").exists()
