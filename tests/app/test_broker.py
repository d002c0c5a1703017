"""A broker that is open and has no clients yet: what is in it, and that it can be opened again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from warren.app.broker import Broker, log_settings, open_broker
from warren.base.errors import Locked, Refused
from warren.base.threads import SystemThreads
from warren.catalog import queues, vhosts
from warren.catalog.settings import CatalogSettings
from warren.config.configuration import CatalogLocation, Configuration, FirstUser
from warren.files.environment import Environment
from warren.log.store import LogStore
from warren.management.broker_facts import BrokerView
from warren.queues.settings import QueueSettings
from warren.server.authentication import Login
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

BODY = 1 << 19


def configured(directory: Path) -> Configuration:
    return Configuration(CatalogLocation(str(directory), CatalogSettings()), memory_limit_bytes=1 << 30)


def vhost_names(broker: Broker) -> list[str]:
    return [vhost.row.name for vhost in broker.vhosts.every()]


def test_it_is_what_the_management_reads(tmp_path: Path) -> None:
    broker = open_broker(configured(tmp_path / "data"))
    running: BrokerView = broker
    assert (running.connection_count, running.channel_count) == (0, 0)
    assert running.node.startswith("warren@") and running.memory_limit_bytes == 1 << 30
    assert not running.alarms and not running.problems and not running.is_draining and not running.listeners
    assert broker.failure is None
    broker.close()


def test_every_vhost_of_the_catalog_is_served_and_what_is_not_durable_has_gone(tmp_path: Path) -> None:
    configuration = replace(configured(tmp_path / "data"), first_user=FirstUser("ann", "secret", "prod"))
    broker = open_broker(configuration)
    assert vhost_names(broker) == ["prod"]
    other = broker.catalog.change(lambda change: vhosts.declare(change, "other"))
    broker.catalog.change(lambda change: queues.declare(change, other.id, "kept", durable=True))
    broker.catalog.change(lambda change: queues.declare(change, other.id, "passing", durable=False))
    broker.close()
    broker = open_broker(configuration)
    assert vhost_names(broker) == ["other", "prod"]
    assert broker.vhosts.find("other").queue_names() == ["kept"]
    assert broker.users.check(Login("ann", "secret"), "").name == "ann"
    broker.close()


def test_progress_is_reported_and_settings_arrive(tmp_path: Path) -> None:
    configuration = replace(configured(tmp_path / "data"), queues=QueueSettings(memory_watermark_bytes=1 << 20))
    open_broker(configuration).close()
    shares: list[float] = []
    broker = open_broker(configuration, shares.append)
    assert broker.vhosts.monitor.limit_bytes == 1 << 20
    assert shares == sorted(shares) and (not shares or shares[-1] == 1.0)
    broker.close()


def test_a_second_opener_is_refused_and_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    configuration = configured(tmp_path / "data")
    with pytest.raises(Refused, match="password"):
        open_broker(replace(configuration, first_user=FirstUser(password="")))
    broker = open_broker(configuration)
    with pytest.raises(Locked):
        open_broker(configuration)
    broker.close()


def test_acknowledgements_become_durable_behind_what_was_published_before_the_disk_was_full() -> None:
    """Publishes precede them in the log, in the same epochs. The broker sizes the ballast for that."""
    configuration = Configuration()
    files = MemoryFiles()
    environment = Environment(files, ManualClock(), SystemThreads(), SeededRandom(1))
    quiet = replace(
        log_settings(configuration), use_worker_process=False, compaction_poll_seconds=1e6, free_bytes_min=0
    )
    store = LogStore.open("/log", quiet, environment)
    files.capacity_bytes = files.used_bytes
    published = store.begin()
    for number in range(configuration.server.unsafe_bytes_max // BODY):
        published.put(1, str(number).encode(), bytes(BODY))
    published.end()
    acknowledged = store.begin()
    acknowledged.put(1, b"ack", b"1")
    epoch = acknowledged.end()
    store.flush()
    until = time.monotonic() + 10
    while store.durable < epoch and not store.commit.is_out_of_room and time.monotonic() < until:
        time.sleep(0.01)
    waits = store.commit.out_of_room
    store.abandon()
    assert (waits, store.durable) == (None, epoch)
