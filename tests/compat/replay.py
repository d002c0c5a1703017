"""Replay the script of requests on RabbitMQ and on Warren, and compare the answers: `python -m tests.compat.replay`.

    script ──▶ RabbitMQ 3.10.8 ──▶ rabbitmq_http.json      recorded: --record; --live asks it again
           └─▶ warren serve    ──▶ differences ──▶ each has a sentence in `EXPLAINED`, or is a failure

Compared are the status, the `location` header, the texts of refusals, and of other answers the names and kinds of all
fields. Of a list every element counts: its fields are merged. Fields that only the statistics of RabbitMQ's virtual
machine have are left out (`IGNORED`).
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pika
import pika.exceptions

from tests.compat.explained import EXPLAINED, IGNORED
from tests.compat.http_script import PASSWORDS, STEPS, Step
from tests.management.ask_server import wait_for, with_management
from tests.server.broker_process import BrokerProcess
from tools.bench.peers import start_rabbitmq

RECORDED = Path(__file__).with_name("rabbitmq_http.json")
CONSUMED = "consumed"
STATISTICS_SECONDS = 6  # RabbitMQ updates its statistics every five

Answer = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--record"]:
        with tempfile.TemporaryDirectory() as directory:
            answers = ask_rabbitmq(Path(directory))
        lines = ",\n".join(json.dumps(answer, sort_keys=True) for answer in answers)
        RECORDED.write_text(f"[\n{lines}\n]\n")
        print(f"{len(answers)} answers of RabbitMQ written to {RECORDED.name}")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        theirs = ask_rabbitmq(Path(directory, "rabbitmq")) if arguments == ["--live"] else recorded()
        ours = ask_warren(Path(directory, "warren"))
    found = list(differences(theirs, ours))
    unexplained = [line for line, reason in found if not reason]
    for line in unexplained:
        print(line)
    print(f"{len(STEPS)} requests: {len(found)} differences, {len(unexplained)} of them unexplained")
    return 1 if unexplained else 0


def recorded() -> list[Answer]:
    return list(json.loads(RECORDED.read_text()))


def ask_rabbitmq(directory: Path) -> list[Answer]:
    with start_rabbitmq(directory) as peer:
        url = f"http://127.0.0.1:{with_management(peer)}"
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            wait_for(client)
        return answers_of(url, peer.port)


def ask_warren(directory: Path) -> list[Answer]:
    with BrokerProcess(directory / "data") as broker:
        return answers_of(f"http://127.0.0.1:{broker.management_port}", broker.port)


def answers_of(url: str, amqp_port: int) -> list[Answer]:
    with (
        _open_connection(amqp_port),
        httpx.Client(base_url=url, timeout=30, trust_env=False) as client,
    ):
        time.sleep(STATISTICS_SECONDS)
        node = client.get("/api/overview", auth=("guest", "guest")).json()["node"]
        connections = client.get("/api/connections", auth=("guest", "guest"))
        name = connections.json()[0]["name"] if connections.status_code == 200 and connections.json() else "none"
        names = {"{node}": node, "{port}": str(amqp_port), "{connection}": name.replace(" ", "%20")}
        return [_answer(client, step, names) for step in STEPS]


def _answer(client: httpx.Client, step: Step, names: Mapping[str, str]) -> Answer:
    path = step.path
    for placeholder, name in names.items():
        path = path.replace(placeholder, name)
    auth = None if step.user is None else (step.user, PASSWORDS[step.user])
    content = step.body if isinstance(step.body, bytes) or step.body is None else json.dumps(step.body).encode()
    headers = {"connection": "close"} | ({} if content is None else {"content-type": "application/json"})
    try:
        response = client.request(step.method, path, content=content, headers=headers, auth=auth)
    except httpx.RemoteProtocolError:  # RabbitMQ disconnects where a handler of it fails
        return {"step": step.title, "status": 0}
    answer: Answer = {"step": step.title, "status": response.status_code}
    if "location" in response.headers:
        answer["location"] = re.sub(r"^https?://[^/]+", "", response.headers["location"])
    try:
        body = json.loads(response.text) if response.text else None
    except ValueError:
        answer["text"] = response.text[:200]
        return answer
    own = {name.replace("%20", " "): placeholder for placeholder, name in names.items()}
    body = _without_names(body, own)
    answer |= {"refusal": body} if response.status_code >= 400 else {"kinds": kinds_of(body)}
    return answer


def _without_names(value: Any, names: Mapping[str, str]) -> Any:
    """The same with placeholders for names of the broker at hand."""
    match value:
        case dict():
            return {names.get(name, name): _without_names(each, names) for name, each in value.items()}
        case list():
            return [_without_names(each, names) for each in value]
        case str():
            for name, placeholder in names.items():
                value = value.replace(name, placeholder)
    return value


def kinds_of(value: Any) -> Any:
    """Names of fields and the kind of each. Elements of a list are merged: a field may be missing in some."""
    match value:
        case dict():
            return {name: kinds_of(value[name]) for name in sorted(value)}
        case list():
            return [_merged([kinds_of(each) for each in value])] if value else []
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
    return "null"


def _merged(kinds: Sequence[Any]) -> Any:
    if not all(isinstance(each, dict) for each in kinds):
        return kinds[0]
    merged: dict[str, Any] = {}
    for each in kinds:
        for name, kind in each.items():
            known = merged.get(name)
            if known in (None, "null", [], {}):
                merged[name] = kind
            elif isinstance(known, dict) and isinstance(kind, dict):
                merged[name] = _merged([known, kind])
    return merged


def differences(theirs: Sequence[Answer], ours: Sequence[Answer]) -> Iterator[tuple[str, str]]:
    """Each difference, with the sentence that explains it, or an empty one."""
    for their, our in zip(theirs, ours, strict=True):
        for line in _compared(their, our):
            text = f"{their['step']}: {line}"
            yield text, next((reason for pattern, reason in EXPLAINED.items() if re.search(pattern, text)), "")


def _compared(their: Answer, our: Answer) -> Iterable[str]:
    if their["status"] != our["status"]:
        yield f"status {our['status']} instead of {their['status']} ({our.get('refusal')}, {their.get('refusal')})"
        return
    for member in ("location", "refusal", "text"):
        if their.get(member) != our.get(member):
            yield f"{member} {our.get(member)!r} instead of {their.get(member)!r}"
    if "kinds" in their:
        yield from _fields("", their["kinds"], our.get("kinds"))


def _fields(at: str, theirs: Any, ours: Any) -> Iterator[str]:
    if isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from _fields(f"{at}[]", theirs[0], ours[0])
        elif theirs != ours:
            yield f"{at or 'the list'} is {'empty' if not ours else 'not empty'}"
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted({*theirs, *ours}):
            path = f"{at}.{name}".removeprefix(".")
            if any(re.search(pattern, path) for pattern in IGNORED):
                continue
            if name not in ours:
                yield f"field {path} is missing"
            elif name not in theirs:
                yield f"field {path} is new"
            else:
                yield from _fields(path, theirs[name], ours[name])
    elif theirs != ours and "null" not in (theirs, ours):
        yield f"field {at or 'the answer'} is {ours} instead of {theirs}"


@contextmanager
def _open_connection(port: int) -> Iterator[None]:
    """A client with a channel and a consumer, for the routes that show them. It may be closed by the script."""
    properties = {"connection_name": "compat"}
    parameters = pika.ConnectionParameters("127.0.0.1", port, client_properties=properties, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(CONSUMED, durable=True)
    channel.basic_qos(prefetch_count=10)
    consumed: Callable[..., None] = lambda *_: None  # noqa: E731 - pika calls it with four arguments
    channel.basic_consume(CONSUMED, consumed)
    try:
        yield
    finally:
        if connection.is_open:
            try:
                connection.close()
            except pika.exceptions.AMQPError:
                print("the connection was closed by the script", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
