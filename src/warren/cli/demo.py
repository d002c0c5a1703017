"""`warren demo`: a short run of the log store in a directory of its own."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warren.base.ids import StorageId
from warren.cli.output import print_line, size

if TYPE_CHECKING:
    from warren.log.store import LogStore

BATCH = 10_000
KEYS = 100_000
STORAGE = StorageId(1)
LINE_SECONDS = 0.5


def demo(
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="How long to append, in seconds.")] = 2.0,
    directory: Annotated[
        str | None, typer.Option("--directory", help="Directory of the store; default: a new temporary one.")
    ] = None,
    container_size: Annotated[
        int, typer.Option("--container-size", min=1, help="Bytes a log file grows by; at least 512 KiB.")
    ] = 1 << 20,
    initial_containers: Annotated[
        int, typer.Option("--initial-containers", min=1, help="Containers a new log file begins with; at least 2.")
    ] = 2,
    max_write_buffers: Annotated[
        int, typer.Option("--max-write-buffers", min=1, help="Blocks gathered before the log is flushed.")
    ] = 10,
) -> None:
    """Create a store, append to it, close it, open it again, read back, verify."""
    from warren.base.build import mode
    from warren.log.settings import LogSettings
    from warren.log.store import LogStore

    settings = LogSettings(
        container_bytes=container_size, initial_containers=initial_containers, max_write_buffers=max_write_buffers
    )
    place = directory or tempfile.mkdtemp(prefix="warren-demo-")
    print_line(f"a log store in {place} (hot modules: {mode()})")
    with LogStore.open(place, settings) as store:
        _append(store, seconds)
    began = time.monotonic()
    with LogStore.open(place) as store:
        key_count = len(store.snapshot())
        value = store.snapshot().get(STORAGE, _key(7))
        took = time.monotonic() - began
        print_line(f"opened again in {took * 1000:.0f} ms: {key_count} keys, durable up to epoch {store.durable}")
        print_line(f"  key {_key(7)!r} has {value!r}")
    _verify(place)
    print_line("\nwhat to type next")
    for line in ("inspect", "verify", "dump --limit 5"):
        print_line(f"  warren log {line} {place}")


def _append(store: LogStore, seconds: float) -> None:
    """Append batches and wait for each: the entries counted are durable."""
    began = printed_at = time.monotonic()
    done = 0
    while True:
        keys = [_key((done + row) % KEYS) for row in range(BATCH)]
        with store.begin() as session:
            session.put_many(STORAGE, keys, [b"value %d" % (done + row) for row in range(BATCH)])
        done += BATCH
        now = time.monotonic()
        if now - printed_at >= LINE_SECONDS or now - began >= seconds:
            printed_at = now
            print_line(f"  {done:>10,} entries, {done / (now - began):>10,.0f} a second, durable epoch {store.durable}")
        if now - began >= seconds:
            return


def _key(number: int) -> bytes:
    return b"key %07d" % number


def _verify(place: str) -> None:
    from warren.base.threads import SystemThreads
    from warren.files.local import LocalFiles
    from warren.log.check.verify import verify

    report = verify(LocalFiles(), place, SystemThreads())
    checked = sum(scan.end for scan in report.files)
    chain = report.chain
    assert chain is not None
    word = "good" if report.is_good else f"DAMAGED: {report.first_damage}"
    print_line(f"verified {size(checked)}: {word}, {chain.linked} epochs linked in one chain")
