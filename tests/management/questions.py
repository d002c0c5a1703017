"""Requests to both servers: RabbitMQ by `ask_server.py`, which records its answers, and Warren by the tests.

Both have the vhosts "/" and "other", the queue `q1` with messages in "/", and one user for each tag, once with
everything permitted in "/" and once with nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pika

from warren.management.routes import ROUTES

ANSWERS = Path(__file__).with_name("rabbitmq_answers.json")
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
VHOSTS = {"/": "%2F", "other": "other"}
QUEUE = "q1"
# Name of the user, tag, whether anything is permitted to it in "/".
USERS = [(f"{tag or 'none'}-{'in' if is_in else 'out'}", tag, is_in) for tag in TAGS for is_in in (True, False)]


# Besides them: a user who may enter "/" and do nothing there.
LIMITED = "limited"


class Question(NamedTuple):
    method: str
    path: str
    user: str | None = "administrator-in"
    password: str = "secret"
    headers: Mapping[str, str] = {}


# How each is refused, to the letter.
REFUSED = {
    "no login": Question("GET", "/api/overview", None),
    "wrong password": Question("GET", "/api/overview", password="wrong"),
    "unknown user": Question("GET", "/api/overview", "unknown"),
    "another scheme": Question("GET", "/api/overview", None, headers={"authorization": "Bearer x"}),
    "no tag": Question("GET", "/api/overview", "none-in"),
    "not monitoring": Question("GET", "/api/nodes", "management-in"),
    "not administrator": Question("GET", "/api/vhosts/%2F", "monitoring-in"),
    "not in the vhost": Question("GET", "/api/queues/other", "management-in"),
    "queue, not in the vhost": Question("GET", "/api/queues/other/q1", "monitoring-in"),
    "no such vhost": Question("GET", "/api/queues/nope"),
    "no such vhost, nothing permitted": Question("GET", "/api/queues/nope", "management-out"),
    "no such queue": Question("GET", "/api/queues/%2F/nope"),
    "no such path": Question("GET", "/api/nope"),
    "no such path, no login": Question("GET", "/api/nope", None),
    "outside the API": Question("GET", "/nope", None),
    "wrong method": Question("POST", "/api/overview"),
    "wrong method, no login": Question("PUT", "/api/queues", None),
    "unknown method": Question("FOO", "/api/overview"),
    "not acceptable": Question("GET", "/api/overview", headers={"accept": "text/html"}),
    "page out of range": Question("GET", "/api/queues?page=9&page_size=1"),
    "page zero": Question("GET", "/api/queues?page=0&page_size=1"),
    "page too large": Question("GET", "/api/queues?page=1&page_size=501"),
    "page is no number": Question("GET", "/api/queues?page=a"),
    "aliveness, nothing permitted": Question("GET", "/api/aliveness-test/%2F", "limited"),
    "no such connection": Question("GET", "/api/connections/nope"),
    "no such connection to close": Question("DELETE", "/api/connections/nope"),
    "no such channel": Question("GET", "/api/channels/nope"),
    "consumers of no such vhost": Question("GET", "/api/consumers/nope"),
    "connections of another vhost": Question("GET", "/api/vhosts/other/connections", "management-in"),
    "wrong method, of a connection": Question("PUT", "/api/connections/nope"),
    "login attempts of no such node": Question("GET", "/api/auth/attempts/nope"),
    "login attempts, not monitoring": Question("GET", "/api/auth/attempts/nope", "management-in"),
    "port is no number": Question("GET", "/api/health/checks/port-listener/x"),
    "time is no number": Question("GET", "/api/health/checks/certificate-expiration/x/weeks"),
    "unit is unknown": Question("GET", "/api/health/checks/certificate-expiration/1/fortnights"),
}
# Where the names and kinds of fields are compared.
SHOWN = {
    "whoami": "/api/whoami",
    "overview": "/api/overview",
    "nodes": "/api/nodes",
    "vhosts": "/api/vhosts",
    "vhost": "/api/vhosts/%2F",
    "queues": "/api/queues",
    "queue": "/api/queues/%2F/q1",
    "page": "/api/queues?page=1&page_size=10",
    "columns": "/api/queues?columns=name,vhost,nope",
    "cluster-name": "/api/cluster-name",
    "aliveness": "/api/aliveness-test/%2F",
    "alarms": "/api/health/checks/alarms",
    "protocol-listener": "/api/health/checks/protocol-listener/amqp",
    "protocol-listener-spelling": "/api/health/checks/protocol-listener/AMQP091",
    "protocol-listener-missing": "/api/health/checks/protocol-listener/mqtt",
    "port-listener-missing": "/api/health/checks/port-listener/1",
    "certificate-expiration": "/api/health/checks/certificate-expiration/1/weeks",
    "quorum": "/api/health/checks/node-is-quorum-critical",
}


def walk(node: str, port: int) -> dict[str, str]:
    """Every route below /api/ that reads, with its names filled in: a path by what stands for it in the answers. Routes
    below /api/warren/ and the OpenAPI document are not RabbitMQ's."""
    found = {}
    names = {"name": QUEUE, "node": node, "port": port, "protocol": "amqp", "component": "policy"}
    names |= {"user": "management-in", "limit": "max-channels", "exchange": "amq.topic"}
    names |= {"within": 1, "unit": "weeks"}
    names |= {"source": "amq.default", "destination": QUEUE, "properties_key": QUEUE}
    read = [each for each in ROUTES if each.method == "GET" and each.path.startswith("/api/")]
    for route in (each for each in read if not each.path.startswith(("/api/warren/", "/api/openapi.json"))):
        for vhost, encoded in VHOSTS.items() if "{vhost}" in route.path else [("", "")]:
            path = route.path.format(vhost=encoded, channel="none", **names)
            found[f"{route.path} {vhost}".strip()] = path
    return found


def ask(client: httpx.Client, question: Question) -> httpx.Response:
    auth = None if question.user is None else httpx.BasicAuth(question.user, question.password)
    return client.request(question.method, question.path, auth=auth, headers=dict(question.headers))


def refusal(response: httpx.Response) -> dict[str, Any]:
    """Status, body and headers by which a client recognizes it."""
    headers = {name: response.headers[name] for name in ("www-authenticate", "allow") if name in response.headers}
    body = json.loads(response.content) if response.content else None
    return {"status": response.status_code, "body": body, "headers": headers}


def kinds(value: Any) -> Any:
    """Names of fields, and what kind of JSON each is. Of a list, its first element."""
    match value:
        case dict():
            return {name: kinds(value[name]) for name in sorted(value)}
        case list():
            return [kinds(value[0])] if value else []
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
    return "null"


@contextmanager
def connected(port: int, user: str, password: str = "secret") -> Iterator[pika.BlockingConnection]:
    """A client with one channel, in confirm mode, and one consumer of a queue with its name."""
    credentials = pika.PlainCredentials(user, password)
    properties = {"connection_name": "a client"}
    parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, client_properties=properties)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=5)
        channel.queue_declare(user, auto_delete=True)
        channel.basic_consume(user, lambda *arguments: None, consumer_tag="t", arguments={"x-priority": 1})
        yield connection


def clients_shown(get: Callable[[str], Any], user: str) -> dict[str, Any]:
    """What is shown of that client, wherever it is."""
    connections, channels = get("/api/connections"), get("/api/channels")
    connection, channel = quote(connections[0]["name"], safe=""), quote(channels[0]["name"], safe="")
    return {
        "connections": connections,
        "connection": get(f"/api/connections/{connection}"),
        "connections of a user": get(f"/api/connections/username/{user}"),
        "channels of a connection": get(f"/api/connections/{connection}/channels"),
        "channels": channels,
        "channel": get(f"/api/channels/{channel}"),
        "consumers": get("/api/consumers"),
        "consumers of a channel": get(f"/api/channels/{channel}")["consumer_details"],
        "consumers of a queue": get(f"/api/queues/%2F/{user}")["consumer_details"],
    }
