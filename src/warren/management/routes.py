"""All routes: path, method, access rule and handler. A test requests every row with every tag.

HEAD is served with GET, and OPTIONS with every route. Where the path has a {vhost}, the user must see it. Routes that
use queues or exchanges also check `broker.permissions`.

`/` is a page for browsers, `/api` a list of the routes for programs. Neither needs a login, and neither shows more than
`/api/version` and the service checks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from warren.management import access, connections, control, definitions, health, messages, policies, topology
from warren.management import overview as queues
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


def page(request: HttpRequest) -> Any:
    broker = request.broker
    state = "The broker is stopping." if broker.is_draining else "The broker is running."
    return _PAGE.format(product=escape(broker.settings.product), version=escape(reported_version(broker)), state=state)


def listing(routes: Sequence[HttpRoute]) -> list[dict[str, str]]:
    return [{"path": route.path, "method": route.method, "tag": route.rule.tag} for route in routes]


_CHECKS: Final = "/api/health/checks"


def _get(path: str, rule: AccessRule, handler: Handler) -> HttpRoute:
    return HttpRoute(path, "GET", rule, handler)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute("/", "GET", AccessRule.ANY_USER, page, HTML),
    _get("/api", AccessRule.ANY_USER, lambda request: listing(ROUTES)),
    _get("/api/overview", AccessRule.MANAGEMENT, server.overview),
    _get("/api/whoami", AccessRule.MANAGEMENT, server.whoami),
    _get("/api/version", AccessRule.ANY_USER, server.version),
    _get("/api/cluster-name", AccessRule.MANAGEMENT, server.cluster_name),
    HttpRoute("/api/cluster-name", "PUT", AccessRule.ADMINISTRATOR, server.set_cluster_name),
    _get("/api/extensions", AccessRule.MANAGEMENT, server.extensions),
    _get("/api/feature-flags", AccessRule.ADMINISTRATOR, server.feature_flags),
    _get("/api/nodes", AccessRule.MONITORING, server.nodes),
    _get("/api/nodes/{node}", AccessRule.MONITORING, server.node),
    _get("/api/vhosts", AccessRule.MANAGEMENT, server.vhosts),
    _get("/api/vhosts/{vhost}", AccessRule.ADMINISTRATOR, server.vhost),
    _get("/api/queues", AccessRule.MANAGEMENT, queues.every),
    _get("/api/queues/{vhost}", AccessRule.MANAGEMENT, queues.of_vhost),
    _get("/api/queues/{vhost}/{name}", AccessRule.MANAGEMENT, queues.one),
    *topology.ROUTES,
    *messages.ROUTES,
    *connections.ROUTES,
    _get("/api/aliveness-test/{vhost}", AccessRule.MANAGEMENT, aliveness),
    _get(f"{_CHECKS}/alarms", AccessRule.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/local-alarms", AccessRule.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/virtual-hosts", AccessRule.MANAGEMENT, health.virtual_hosts),
    _get(f"{_CHECKS}/port-listener/{{port}}", AccessRule.MANAGEMENT, health.port_listener),
    _get(f"{_CHECKS}/protocol-listener/{{protocol}}", AccessRule.MANAGEMENT, health.protocol_listener),
    _get(f"{_CHECKS}/certificate-expiration/{{within}}/{{unit}}", AccessRule.MANAGEMENT, health.certificate_expiration),
    _get(f"{_CHECKS}/is-in-service", AccessRule.ANY_USER, health.in_service),
    _get(f"{_CHECKS}/ready-to-serve-clients", AccessRule.ANY_USER, health.in_service),
    _get(f"{_CHECKS}/node-is-quorum-critical", AccessRule.MANAGEMENT, health.quorum_critical),
    _get(f"{_CHECKS}/node-is-mirror-sync-critical", AccessRule.MANAGEMENT, health.quorum_critical),
    *access.ROUTES,
    *policies.ROUTES,
    *definitions.ROUTES,
    *control.ROUTES,
)
