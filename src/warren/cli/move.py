"""`warren move`: move the messages of queues from one AMQP 0-9-1 broker to another, RabbitMQ or Warren.

Options, progress and the report. The transfer itself, and why nothing is lost: move_transfer; the client: move_client.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from warren.base.errors import Misuse, Refused
from warren.cli.output import AsJson, Bar, print_json, print_line, table

if TYPE_CHECKING:
    from warren.cli.move_client import BrokerUri
    from warren.cli.move_transfer import MovedQueue, MovePlan

UNAVAILABLE = 69
MANAGEMENT_SECONDS_MAX = 60.0
PREFETCH_MAX = 65_535


def move(
    source: Annotated[
        str, typer.Option("--from", metavar="URI", envvar="WARREN_MOVE_FROM", help="The source: amqp://… or amqps://…")
    ],
    target: Annotated[str, typer.Option("--to", metavar="URI", envvar="WARREN_MOVE_TO", help="The target.")],
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Queues of the source.", show_default=False)
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="All queues of the vhost; needs --from-management.")] = False,
    management: Annotated[
        str | None,
        typer.Option(
            "--from-management",
            metavar="URL",
            envvar="WARREN_MOVE_FROM_MANAGEMENT",
            help="The management API of the source: http://USER:PASSWORD@HOST:15672",
        ),
    ] = None,
    renames: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Another name at the target; repeatable.")
    ] = None,
    declare: Annotated[bool, typer.Option("--declare", help="Declare a missing queue, durable.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--until-empty", help="Continue until a signal, or end when the queues are empty.")
    ] = False,
    prefetch: Annotated[
        int, typer.Option("--prefetch", min=1, max=PREFETCH_MAX, help="Messages of a queue without confirm, at most.")
    ] = 500,
    retry_seconds: Annotated[
        float, typer.Option("--retry-seconds", min=1.0, help="End after so long without a broker or without progress.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Move messages from the queues of one broker to another.

    A message is acknowledged at the source behind the confirm of the target: whatever is killed, none is lost. One that
    the source delivers again may be at the target twice: it gets the header x-warren-moved, and is counted.

    \b
    Examples:
      warren move --from amqp://guest:guest@old/ --to amqp://guest:guest@new/ orders bills
      warren move --from amqp://old/shop --to amqp://new/shop --from-management http://old:15672 --all --declare
    """
    import asyncio

    from warren.cli.move_client import BrokerLost, parse_uri
    from warren.cli.move_transfer import MovePlan

    from_uri, to_uri = parse_uri("source", source), parse_uri("target", target)
    names = _named_queues(from_uri, queues or [], is_all, management)
    moved = _renamed(names, renames or [], from_uri.address == to_uri.address)
    plan = MovePlan(from_uri, to_uri, moved, prefetch, declare, follow, retry_seconds)
    began = time.monotonic()
    try:
        asyncio.run(_run(plan))
    except BrokerLost as error:
        sys.stderr.write(f"warren: {error}\n")
        raise typer.Exit(UNAVAILABLE) from error
    finally:
        _report(plan.queues, time.monotonic() - began, as_json)


def _named_queues(source: BrokerUri, names: Sequence[str], is_all: bool, management: str | None) -> list[str]:
    if is_all == bool(names):
        raise Misuse("name the queues to move, or use --all", "warren move --from URI --to URI QUEUE…")
    if not is_all:
        return list(dict.fromkeys(names))
    if management is None:
        raise Misuse(
            "--all needs the management API of the source", "--from-management http://USER:PASSWORD@HOST:15672"
        )
    return _all_queues(source, management)


def _all_queues(source: BrokerUri, management: str) -> list[str]:
    """Exclusive queues belong to a connection, and streams do not empty: neither is moved."""
    from urllib.parse import quote

    from warren.cli.ctl.client import CtlError, UrlClient

    path = f"/api/queues/{quote(source.vhost, safe='')}?columns=name,exclusive,type"
    try:
        answer = UrlClient(management, MANAGEMENT_SECONDS_MAX).request("GET", path)
    except (CtlError, TimeoutError) as error:
        raise Refused(f"the queues of {source.name} cannot be listed: {error}") from error
    if not answer.is_good or not isinstance(answer.content, list):
        raise Refused(f"the queues of {source.name} cannot be listed: {answer.status} {answer.reason}")
    rows: list[dict[str, Any]] = answer.content
    return sorted(row["name"] for row in rows if not row.get("exclusive") and row.get("type") != "stream")


def _renamed(names: Sequence[str], renames: Sequence[str], is_same_vhost: bool) -> list[MovedQueue]:
    from warren.cli.move_transfer import MovedQueue

    new_names: dict[str, str] = {}
    for rename in renames:
        splits = [(rename[:at], rename[at + 1 :]) for at, letter in enumerate(rename) if letter == "="]
        old, new = next((each for each in splits if each[0] in names), ("", ""))
        if not new:
            raise Misuse(f"--rename {rename!r} names no queue that is moved", "write --rename OLD=NEW")
        new_names[old] = new
    moved = [MovedQueue(name, new_names.get(name, name)) for name in names]
    for queue in moved:
        if is_same_vhost and queue.source == queue.target:
            raise Misuse(f"queue {queue.source!r} would be moved to itself", "use --rename OLD=NEW, or another target")
    return moved


async def _run(plan: MovePlan) -> None:
    import asyncio
    import signal

    from warren.cli.move_transfer import MoveMonitor, move_queues

    with Bar("moving", None, "messages") as bar:
        total = 0

        def show_progress() -> None:
            nonlocal total
            moved = sum(queue.moved for queue in plan.queues)
            total = total or moved + sum(queue.waiting for queue in plan.queues)
            bar.reach(moved, None if plan.has_follow else max(total, moved))

        monitor = MoveMonitor(show_progress, _print_event)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, monitor.stop.set)
        await move_queues(plan, monitor)


def _print_event(text: str) -> None:
    sys.stderr.write(f"moving: {text}\n")


def _report(queues: Sequence[MovedQueue], seconds: float, as_json: bool) -> None:
    """Also after an error: what was moved until then."""
    moved = sum(queue.moved for queue in queues)
    repeats = sum(queue.possible_repeats for queue in queues)
    if as_json:
        rows = [
            {
                "queue": each.source,
                "target": each.target,
                "moved": each.moved,
                "possible_repeats": each.possible_repeats,
            }
            for each in queues
        ]
        print_json({"moved": moved, "possible_repeats": repeats, "seconds": round(seconds, 3), "queues": rows})
        return
    rows_shown = [(escape(each.source), each.moved, each.possible_repeats, escape(each.target)) for each in queues]
    table("queues", ("queue", "moved", "possible repeats", "target"), rows_shown)
    print_line(
        f"moved {moved} messages in {seconds:.1f} s ({moved / max(seconds, 1e-9):.0f} a second),"
        f" {repeats} of them possible repeats"
    )
