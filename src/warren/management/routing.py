"""The route table's shape: (path, method, who may, handler), and how a request finds its row.

    /api/queues/%2F/a%2Fb        split at the slashes that were sent, then each part decoded: vhost "/", queue "a/b"

A handler is a plain function that may block: it gets what was `HttpRequest` and returns what is answered in JSON, or raises a
refusal. It never sees a request that its row does not permit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from warren.broker.realm import Vhost
from warren.catalog.users import UserRow
from warren.management.queue_facts import QueueFacts
from warren.management.refusals import not_found
from warren.management.running import BrokerView, Listener
from warren.management.who import SOCKET_USER, AccessRule


@dataclass(frozen=True, slots=True)
class FactsSource:
    """What handlers read from."""

    running: BrokerView
    facts: QueueFacts
    listeners: Callable[[], Sequence[Listener]]  # all of them, our own too


@dataclass(frozen=True, slots=True)
class HttpRequest:
    source: FactsSource
    user: UserRow = SOCKET_USER
    names: Mapping[str, str] = field(default_factory=dict)  # from the path
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    realm: Vhost | None = None  # the vhost, where the path names one that this user sees

    @property
    def running(self) -> BrokerView:
        return self.source.running

    @property
    def vhost(self) -> Vhost:
        assert self.realm is not None, "only paths with a {vhost} have one"
        return self.realm


class HttpResponse(NamedTuple):
    """Where 200 is not enough."""

    content: Any
    status: int = 200


Handler = Callable[[HttpRequest], Any]
JSON = "application/json"


class HttpRoute(NamedTuple):
    path: str
    method: str
    who: AccessRule
    handler: Handler
    content_type: str = JSON  # of another type, the handler returns the text itself


class RouteMatch(NamedTuple):
    by_method: Mapping[str, HttpRoute]
    names: Mapping[str, str]


class HttpRoutes:
    """Rows by their paths."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._by_length: dict[int, dict[tuple[str, ...], dict[str, HttpRoute]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            self._by_length.setdefault(len(parts), {}).setdefault(parts, {})[route.method] = route

    def find(self, raw_path: bytes) -> RouteMatch:
        """Refused if nothing has this path. One slash at the end is no matter."""
        parts = [_decoded(part) for part in raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")]
        for template, by_method in self._by_length.get(len(parts), {}).items():
            if all(_is_name(want) or want == part for want, part in zip(template, parts, strict=True)):
                pairs = zip(template, parts, strict=True)
                return RouteMatch(by_method, {want[1:-1]: part for want, part in pairs if _is_name(want)})
        raise not_found()


def _is_name(part: str) -> bool:
    return part.startswith("{")


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise not_found() from error
