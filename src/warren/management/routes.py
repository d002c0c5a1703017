"""The first pages of the HTTP port: `/` for a person with a browser, `/api` for a program. Both need no login, and tell
nothing that `/api/version` and the service checks do not.

All routes: path, method, who may, and what answers. A test walks every row with every tag.

HEAD goes with GET, and OPTIONS with everything. Where the path names a {vhost}, only those get there who see it. A row
that touches queues or exchanges asks `broker.permissions` besides what stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from warren.management import health, queues
from warren.management import overview as server
from warren.management.health import aliveness
from warren.management.overview import reported_version
from warren.management.requests import AccessRule, Handler, HttpRequest, HttpRoute

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
    return _PAGE.format(
        product=escape(running.settings.product), version=escape(reported_version(running)), state=state
    )


def listing(routes: Sequence[HttpRoute]) -> list[dict[str, str]]:
    return [{"path": route.path, "method": route.method, "tag": route.who.name.lower()} for route in routes]


_CHECKS: Final = "/api/health/checks"


def _get(path: str, who: AccessRule, handler: Handler) -> HttpRoute:
    return HttpRoute(path, "GET", who, handler)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute("/", "GET", AccessRule.ANYBODY, page, HTML),
    _get("/api", AccessRule.ANYBODY, lambda asked: listing(ROUTES)),
    _get("/api/overview", AccessRule.MANAGEMENT, server.overview),
    _get("/api/whoami", AccessRule.MANAGEMENT, server.whoami),
    _get("/api/version", AccessRule.ANYBODY, server.version),
    _get("/api/cluster-name", AccessRule.MANAGEMENT, server.cluster_name),
    _get("/api/nodes", AccessRule.MONITORING, server.nodes),
    _get("/api/nodes/{node}", AccessRule.MONITORING, server.node),
    _get("/api/vhosts", AccessRule.MANAGEMENT, server.vhosts),
    _get("/api/vhosts/{vhost}", AccessRule.ADMINISTRATOR, server.vhost),
    _get("/api/queues", AccessRule.MANAGEMENT, queues.every),
    _get("/api/queues/{vhost}", AccessRule.MANAGEMENT, queues.of_vhost),
    _get("/api/queues/{vhost}/{name}", AccessRule.MANAGEMENT, queues.one),
    _get("/api/aliveness-test/{vhost}", AccessRule.MANAGEMENT, aliveness),
    _get(f"{_CHECKS}/alarms", AccessRule.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/local-alarms", AccessRule.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/virtual-hosts", AccessRule.MANAGEMENT, health.virtual_hosts),
    _get(f"{_CHECKS}/port-listener/{{port}}", AccessRule.MANAGEMENT, health.port_listener),
    _get(f"{_CHECKS}/protocol-listener/{{protocol}}", AccessRule.MANAGEMENT, health.protocol_listener),
    _get(f"{_CHECKS}/is-in-service", AccessRule.ANYBODY, health.in_service),
    _get(f"{_CHECKS}/ready-to-serve-clients", AccessRule.ANYBODY, health.in_service),
    _get(f"{_CHECKS}/node-is-quorum-critical", AccessRule.MANAGEMENT, health.quorum_critical),
    _get(f"{_CHECKS}/node-is-mirror-sync-critical", AccessRule.MANAGEMENT, health.quorum_critical),
)
