"""The first pages of the HTTP port: `/` for a person with a browser, `/api` for a program. Both need no login, and tell
nothing that `/api/version` and the service checks do not."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from warren.management.routing import HttpRequest, HttpRoute
from warren.management.server import told_version

HTML = "text/html; charset=utf-8"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{product}</title></head>
<body>
<h1>{product} {version}</h1>
<p>{state}</p>
<ul>
<li><a href="/api/overview">/api/overview</a>: connections, queues, messages (asks for user and password)</li>
<li><a href="/api/queues">/api/queues</a>: every queue</li>
<li><a href="/api/health/checks/alarms">/api/health/checks/alarms</a>: whether publishers are blocked</li>
<li><a href="/api">/api</a>: all routes</li>
</ul>
<p>There is no web interface: this port serves the HTTP API, in the shape of RabbitMQ's.</p>
</body>
</html>
"""


def page(asked: HttpRequest) -> Any:
    running = asked.running
    state = "The broker is stopping." if running.is_draining else "The broker is running."
    return _PAGE.format(product=escape(running.settings.product), version=escape(told_version(running)), state=state)


def listing(routes: Sequence[HttpRoute]) -> list[dict[str, str]]:
    return [{"path": route.path, "method": route.method, "tag": route.who.name.lower()} for route in routes]
