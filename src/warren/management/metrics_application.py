"""What Prometheus asks: three paths, no login, text. Beside the API, at a port of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warren.management.metrics import all_metrics, detailed
from warren.management.queue_facts import QueueFact
from warren.management.routing import FactsSource

_LOG = logging.getLogger(__name__)
_QUERY_FIELDS_MAX = 100
_HEADERS = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}

Query = dict[str, list[str]]


class MetricsApplication:
    """Is an ASGI application."""

    def __init__(self, source: FactsSource, executor: Executor) -> None:
        self._source = source
        self._executor = executor
        self._paths: dict[str, Callable[[Query], Iterable[Metric]]] = {
            "/metrics": lambda query: all_metrics(source.running, self._facts()),
            "/metrics/per-object": lambda query: all_metrics(source.running, self._facts(), is_per_object=True),
            "/metrics/detailed": self._detailed,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answered(scope)
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]):
            response.headers["connection"] = "close"  # nobody reads a body here
        await response(scope, receive, send)

    async def _answered(self, scope: Scope) -> Response:
        wanted = self._paths.get(scope["path"])
        if wanted is None:
            body = b'{"error":"Object Not Found","reason":"Not Found"}'
            return Response(body, 404, {**_HEADERS, "connection": "close"}, "application/json")
        if scope["method"] not in ("GET", "HEAD"):
            return Response(b"", 405, {**_HEADERS, "allow": "GET, HEAD", "connection": "close"})
        try:
            query = parse_qs(scope["query_string"].decode("ascii", "replace"), max_num_fields=_QUERY_FIELDS_MAX)
            loop = asyncio.get_running_loop()
            text = await loop.run_in_executor(self._executor, lambda: _text(wanted(query)))
        except ValueError:
            return Response(b"", 400, _HEADERS)
        except Exception:
            _LOG.exception("metrics could not be found out")
            return Response(b"", 500, _HEADERS)
        headers = {**_HEADERS, "content-type": CONTENT_TYPE_PLAIN_0_0_4, "content-length": str(len(text))}
        return Response(b"" if scope["method"] == "HEAD" else text, 200, headers)

    def _facts(self, vhosts: Sequence[str] = ()) -> list[QueueFact]:
        realms = self._source.running.realms.every()
        return self._source.facts.of(realm for realm in realms if not vhosts or realm.vhost.name in vhosts)

    def _detailed(self, query: Query) -> Iterable[Metric]:
        return detailed(self._source.running, self._facts(query.get("vhost", [])), query.get("family", []))


class _Found:
    """Is a collector."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Found(list(metrics)))
    return generate_latest(registry)
