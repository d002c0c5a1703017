"""A broker on a disk so small that it is soon full, and its clients: a real disk, mounted for them alone.

    unshare --mount --map-root-user python -m tests.server.broker_on_a_full_disk SCENARIO PLACE

`alarm`: publishers fill the disk up to the free space to be kept. `full`: another process fills it to the last byte,
under load; then once more, and the broker is killed. `bare`: the same without a disk reserve. `acked`: the broker is
killed after it has received acknowledgements, for which the disk reserve has room. `still`: the disk becomes full while
nothing is written. `stopped`: the broker is stopped while it waits. `history`: messages pass through an empty queue.
`started`, `waiting`: the broker is started on a full disk, with and without a disk reserve. Clients check everything
meanwhile, and an assertion that fails ends the scenario.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.app.disk_to_be_filled import fill_up, mounted
from tests.server.broker_process import BrokerProcess
from tests.server.load import Flood, broker_with, client_of, consume, count_of, declared, number_of, until
from tests.server.raw_client import RawClient
from warren.amqp import methods
from warren.log.file_record import DISK_RESERVE
from warren.server.settings import ServerSettings

SIZE = 8000
MORE = 200  # messages behind the moment at which there was room again
TAKEN = 300  # consumed while there was none
PREFETCH = 50
DISK_RESERVE_BYTES = (18 << 20) + ServerSettings().unsafe_bytes_max
LARGE, LARGE_FLOODS = 200_000, 4  # with them as much is published and not durable as may be (`unsafe_bytes_max`)
SETTLED_SECONDS_MAX = 15.0  # acknowledgements are on the disk after 50 ms, if it takes them and the machine is idle
HISTORY_ROUNDS, HISTORY_AT_ONCE, HISTORY_SIZE = 150, 80, 100_000
DECLARERS = 8  # more than the server has threads: each of them waits for the disk


def opened(place: Path, mib: int, filler_mib: int, free_limit: str) -> tuple[BrokerProcess, Path]:
    """Only its data is on that disk. Returns the filler, too: what takes room, and gives it when it goes."""
    filler = mounted(place / "disk", mib, filler_mib)
    (place / "disk" / "data").mkdir()
    (place / "data").symlink_to(place / "disk" / "data")
    return broker_with(place, f"disk_free_limit.absolute = {free_limit}", "heartbeat = 0"), filler


def durable_epoch(broker: BrokerProcess) -> int:
    metrics = httpx.get(f"http://127.0.0.1:{broker.prometheus_port}/metrics", trust_env=False).text
    [line] = [line for line in metrics.splitlines() if line.startswith("warren_epoch_durable ")]
    return int(float(line.split()[1]))


def wait_for_commit(broker: BrokerProcess) -> None:
    """Return when a commit has followed. If none comes, what was written is durable already."""
    before, end = durable_epoch(broker), time.monotonic() + SETTLED_SECONDS_MAX
    while durable_epoch(broker) == before and time.monotonic() < end:
        time.sleep(0.05)


def take(broker: BrokerProcess, count: int, seen: list[int]) -> None:
    """Consume so many, and acknowledge them."""
    with client_of(broker) as client:
        consume(client, "jobs", PREFETCH)
        for _ in range(count):
            tag = client.expect(methods.BasicDeliver).delivery_tag
            seen.append(number_of(client.body())[1])
            client.send_method(1, methods.BasicAck(tag))
        client.send_method(1, methods.ChannelClose(200, "enough"))
        while not isinstance(client.method(), methods.ChannelCloseOk):
            continue


def blocked_reason(broker: BrokerProcess) -> str:
    """The reason that a new connection receives."""
    with client_of_the_blocked(broker) as client:
        return client.expect(methods.ConnectionBlocked).reason


def client_of_the_blocked(broker: BrokerProcess) -> RawClient:
    client = RawClient(broker.port)
    client.socket.settimeout(30.0)
    return client.log_in(connection__blocked=True)


def is_read(broker: BrokerProcess) -> bool:
    """Whether the broker reads from a publisher without `connection.blocked`: it sends more than sockets buffer."""
    with client_of(broker) as client:
        client.socket.settimeout(1.0)
        with suppress(TimeoutError):
            for _ in range(400):
                client.publish(1, "others", *[bytes(SIZE)] * 20)
            return True
        return False


def rest(broker: BrokerProcess, seen: list[int]) -> None:
    """Consume all there is."""
    while left := count_of(broker, "jobs"):
        take(broker, left, seen)


def alarm(place: Path) -> None:
    broker, filler = opened(place, 220, 120, "40MB")
    with broker:
        declared(broker, "jobs", "others")
        flood = Flood(broker, 1, "jobs", SIZE, confirms=True)
        until(lambda: flood.has_received(methods.ConnectionBlocked), "publishers are not blocked")
        seen: list[int] = []
        take(broker, TAKEN, seen)
        assert seen == list(range(TAKEN)), "consumers go on"
        assert blocked_reason(broker) == "low on disk", "a new connection is blocked as well"
        assert not is_read(broker), "who cannot hear it is not read"
        confirmed = flood.confirmed
        filler.unlink()
        until(lambda: flood.has_received(methods.ConnectionUnblocked), "publishers are not unblocked")
        until(lambda: flood.sent > confirmed + MORE, "the publisher was not read again")
        sent = flood.finish()
        until(lambda: flood.confirmed == sent, "confirms are missing")
        rest(broker, seen)
        assert seen == list(range(sent)) and flood.error is None
        flood.close()


def full(place: Path, mib: int = 300, filler_mib: int = 1) -> None:
    broker, filler = opened(place, mib, filler_mib, "2MB")
    with broker:
        declared(broker, "jobs", "others")
        flood = Flood(broker, 1, "jobs", SIZE, confirms=True)
        until(lambda: flood.confirmed > 5 * TAKEN, "confirms are missing")
        fill_up(filler)
        until(lambda: flood.has_received(methods.ConnectionBlocked), "publishers are not blocked")
        declarers = [client_of(broker) for _ in range(DECLARERS)]
        for number, client in enumerate(declarers):
            client.send_method(1, methods.QueueDeclare(queue=f"later.{number}", durable=True))
        seen: list[int] = []
        take(broker, TAKEN, seen)
        assert seen == list(range(TAKEN)), "consumers continue, and new connections are accepted"
        assert blocked_reason(broker) == "low on disk"
        filler.unlink()
        until(lambda: flood.has_received(methods.ConnectionUnblocked), "publishers are not unblocked")
        for client in declarers:
            client.expect(methods.QueueDeclareOk)
            client.socket.close()
        sent = flood.sent
        until(lambda: flood.confirmed > sent + MORE, "the publisher does not go on")
        fill_up(filler)
        until(
            lambda: sum(isinstance(each, methods.ConnectionBlocked) for each in flood.received) >= 2,
            "… not blocked again",
        )
        confirmed = flood.confirmed
        broker.kill()
        filler.unlink()
        flood.close()
        broker.start()
        again: list[int] = []
        rest(broker, again)
        assert again == sorted(set(again)), "in order, none twice"
        assert set(range(confirmed)) <= set(seen) | set(again), "nothing that was confirmed is lost"


def bare(place: Path) -> None:
    """From the start there is too little room to keep some of it: everything waits."""
    full(place, 300, 270)


def acked(place: Path) -> None:
    """Publishers wait, acknowledgements do not: they are durable, though the disk has no room, and stay so. Publishers
    fill the disk: another process could take the room that the broker gives back to itself."""
    broker, filler = opened(place, 500, 150, "0")  # no client is blocked before the log runs out of room
    reserve = place / "data" / "log" / DISK_RESERVE
    with broker:
        declared(broker, "jobs", "others")
        assert reserve.stat().st_size == DISK_RESERVE_BYTES
        flood = Flood(broker, 1, "jobs", SIZE, confirms=True)
        until(lambda: flood.confirmed > 5 * TAKEN, "confirms are missing")
        floods = [flood, *(Flood(broker, 2 + at, "others", LARGE) for at in range(LARGE_FLOODS))]
        until(lambda: not reserve.exists(), "it is not used")
        until(lambda: flood.has_received(methods.ConnectionBlocked), "publishers are not blocked")
        seen: list[int] = []
        take(broker, TAKEN, seen)
        wait_for_commit(broker)
        confirmed = flood.confirmed
        broker.kill()
        for each in floods:
            each.close()
        filler.unlink()
        broker.start()
        assert reserve.stat().st_size == DISK_RESERVE_BYTES, "there is room for it again"
        again: list[int] = []
        rest(broker, again)
        assert not set(seen) & set(again), "what was acknowledged comes back"
        assert set(range(confirmed)) <= set(seen) | set(again), "what was confirmed is lost"


def still(place: Path) -> None:
    """No client writes when the disk becomes full. The log has a little room left; the SQL catalog has none."""
    broker, filler = opened(place, 100, 1, "2MB")
    with broker:
        declared(broker, "jobs", "others")
        fill_up(filler)
        with client_of(broker) as declarer:
            declarer.send_method(1, methods.QueueDeclare(queue="later", durable=True))
            assert blocked_reason(broker) == "low on disk", "new connections are accepted"
            filler.unlink()
            declarer.expect(methods.QueueDeclareOk)


def stopped(place: Path) -> None:
    """It is stopped while it waits for room, and had none to keep: it goes, with all that is durable."""
    broker, filler = opened(place, 75, 40, "2MB")
    with broker:
        declared(broker, "jobs", "others")
        flood = Flood(broker, 1, "jobs", SIZE, confirms=True)
        until(lambda: flood.confirmed > TAKEN, "confirms are missing")
        fill_up(filler)
        until(lambda: flood.has_received(methods.ConnectionBlocked), "publishers are not blocked")
        assert broker.stop() == 1, "not as it should be"
        confirmed = flood.confirmed
        flood.close()
        filler.unlink()
        broker.start()
        seen: list[int] = []
        rest(broker, seen)
        assert seen == sorted(set(seen)) and set(range(confirmed)) <= set(seen)


def started(place: Path) -> None:
    """It is stopped, the disk fills up, and it is started: publishers are blocked, consumers drain the queue."""
    broker, filler = opened(place, 300, 1, "2MB")
    with broker:
        declared(broker, "jobs", "others")
        flood = Flood(broker, 1, "jobs", SIZE, count=1000, confirms=True)
        until(lambda: flood.confirmed >= 1000, "confirms are missing")
        flood.close()
        for stop in (broker.stop, broker.kill):
            stop()
            fill_up(filler)
            broker.start()
            assert blocked_reason(broker) == "low on disk"
            seen: list[int] = []
            take(broker, TAKEN, seen)
            filler.unlink()
            until((place / "data" / "log" / DISK_RESERVE).exists, "nothing is kept for the next time")
            with client_of(broker, confirms=True) as publisher:
                publisher.publish(1, "others", b"room")
                publisher.expect(methods.BasicAck)
        assert count_of(broker, "jobs") == 1000 - 2 * TAKEN


def waiting(place: Path) -> None:
    """There is no reserve for a start on a full disk: it waits for room, logs so, and continues when there is some."""
    broker, filler = opened(place, 120, 80, "2MB")
    with broker:
        declared(broker, "jobs")
        with client_of(broker, confirms=True) as publisher:
            publisher.publish(1, "jobs", b"kept")
            publisher.expect(methods.BasicAck)
        broker.kill()
        (place / "data" / "log" / DISK_RESERVE).unlink(missing_ok=True)
        fill_up(filler)
        starting = threading.Thread(target=broker.start)
        starting.start()
        until(lambda: "start waits for free disk space" in broker.log, "nothing is logged")
        assert starting.is_alive()
        filler.unlink()
        starting.join()
        assert count_of(broker, "jobs") == 1


def history(place: Path) -> None:
    """Four times as much passes through an empty queue as the disk has: history yields, and no publisher is blocked.

    What is not reflected and flushed yet is no history: at 240 MB/s half a second of it is 120 MB. So the disk has room
    for that beside the reserve and the limit."""
    broker, _ = opened(place, 300, 1, "60MB")
    with broker, client_of_the_blocked(broker) as publisher, client_of(broker) as consumer:
        declared(broker, "jobs")
        publisher.channel(confirms=True)
        consume(consumer, "jobs", no_ack=True)
        sent = confirmed = 0
        for _ in range(HISTORY_ROUNDS):
            publisher.publish(1, "jobs", *[bytes(HISTORY_SIZE)] * HISTORY_AT_ONCE)
            sent += HISTORY_AT_ONCE
            while confirmed < sent:
                received = publisher.method()
                assert isinstance(received, methods.BasicAck), f"a publisher is blocked by history: {received}"
                confirmed = received.delivery_tag
            for _ in range(HISTORY_AT_ONCE):
                consumer.expect(methods.BasicDeliver)
                consumer.body()


if __name__ == "__main__":
    scenarios = {"alarm": alarm, "full": full, "bare": bare, "acked": acked, "still": still, "stopped": stopped}
    scenarios |= {"history": history, "started": started, "waiting": waiting}
    scenarios[sys.argv[1]](Path(sys.argv[2]))
