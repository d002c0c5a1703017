"""All routes: path, method, access rule and handler. A test requests every row with every tag.

HEAD is served with GET, and OPTIONS with every route. Where the path has a {vhost}, the user must see it. Routes that
use queues or exchanges also check `broker.permissions`.

`/` is a page for browsers, `/api` a list of the routes for programs, `/api/openapi.json` their description (`openapi`).
None needs a login, and none shows more than `/api/version` and the service checks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from warren.management import access, connections, control, definitions, health, messages, openapi, policies, topology
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
<li><a href="/api">/api</a>: all routes; <a href="/api/openapi.json">/api/openapi.json</a>: their OpenAPI document</li>
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


def _get(path: str, rule: AccessRule, handler: Handler, summary: str) -> HttpRoute:
    return HttpRoute(path, "GET", rule, handler, summary=summary)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute(
        "/",
        "GET",
        AccessRule.ANY_USER,
        page,
        HTML,
        summary="a page for a browser: the version, whether the broker runs, links",
    ),
    _get(
        "/api", AccessRule.ANY_USER, lambda request: listing(ROUTES), "this table: path, method and tag of every route"
    ),
    _get(
        openapi.PATH,
        AccessRule.ANY_USER,
        lambda request: openapi.document(ROUTES, reported_version(request.broker)),
        "this table as an OpenAPI 3.1 document: parameters, bodies and statuses of every route",
    ),
    _get("/api/overview", AccessRule.MANAGEMENT, server.overview, "the server, its contents, counters since the start"),
    _get("/api/whoami", AccessRule.MANAGEMENT, server.whoami, "name and tags"),
    _get(
        "/api/version",
        AccessRule.ANY_USER,
        server.version,
        "the version, as a text; as in `server_properties` of AMQP: `product_version`, or 3.10.8",
    ),
    _get("/api/cluster-name", AccessRule.MANAGEMENT, server.cluster_name, "the name of this server"),
    HttpRoute(
        "/api/cluster-name",
        "PUT",
        AccessRule.ADMINISTRATOR,
        server.set_cluster_name,
        summary="`name`, kept as a global parameter",
    ),
    _get("/api/extensions", AccessRule.MANAGEMENT, server.extensions, "always empty: there is no web interface"),
    _get(
        "/api/feature-flags",
        AccessRule.ADMINISTRATOR,
        server.feature_flags,
        "feature flags of RabbitMQ 3.10 that are in effect",
    ),
    _get("/api/nodes", AccessRule.MONITORING, server.nodes, "this server: memory, disk, files, alarms"),
    _get("/api/nodes/{node}", AccessRule.MONITORING, server.node, "the same, not in a list"),
    _get("/api/vhosts", AccessRule.MANAGEMENT, server.vhosts, "vhosts, with their message counts"),
    _get("/api/vhosts/{vhost}", AccessRule.ADMINISTRATOR, server.vhost, "one vhost"),
    _get("/api/queues", AccessRule.MANAGEMENT, queues.every, "queues of all vhosts that the user sees"),
    _get("/api/queues/{vhost}", AccessRule.MANAGEMENT, queues.of_vhost, "queues of one vhost"),
    _get("/api/queues/{vhost}/{name}", AccessRule.MANAGEMENT, queues.one, "one queue"),
    *topology.ROUTES,
    *messages.ROUTES,
    *connections.ROUTES,
    _get(
        "/api/aliveness-test/{vhost}",
        AccessRule.MANAGEMENT,
        aliveness,
        "publishes a message to the queue `aliveness-test` and gets it, with the user's own permissions",
    ),
    _get(
        f"{_CHECKS}/alarms",
        AccessRule.MANAGEMENT,
        health.alarms,
        "503 while publishers are blocked (`memory`, `disk`, `cleanup`), or while a background task fails: resource "
        "`background`, with `task` and `reason`; or while damage on disk is known: resource `damage`, with the queue's "
        "name, file and offset in `reason`",
    ),
    _get(f"{_CHECKS}/local-alarms", AccessRule.MANAGEMENT, health.alarms, "the same: there is one node"),
    _get(
        f"{_CHECKS}/virtual-hosts",
        AccessRule.MANAGEMENT,
        health.virtual_hosts,
        "503 if a vhost of the catalog is not served",
    ),
    _get(
        f"{_CHECKS}/port-listener/{{port}}",
        AccessRule.MANAGEMENT,
        health.port_listener,
        "503 if there is no listener on the port",
    ),
    _get(
        f"{_CHECKS}/protocol-listener/{{protocol}}",
        AccessRule.MANAGEMENT,
        health.protocol_listener,
        "503 if there is no listener for it: `amqp`, `http`, `http/prometheus`",
    ),
    _get(
        f"{_CHECKS}/certificate-expiration/{{within}}/{{unit}}",
        AccessRule.MANAGEMENT,
        health.certificate_expiration,
        "503 if a certificate expires within so many `days`, `weeks`, `months` or `years`",
    ),
    _get(
        f"{_CHECKS}/is-in-service", AccessRule.ANY_USER, health.in_service, "503 as soon as the server begins to stop"
    ),
    _get(f"{_CHECKS}/ready-to-serve-clients", AccessRule.ANY_USER, health.in_service, "the same"),
    _get(
        f"{_CHECKS}/node-is-quorum-critical",
        AccessRule.MANAGEMENT,
        health.quorum_critical,
        "always 200: there is one node",
    ),
    _get(f"{_CHECKS}/node-is-mirror-sync-critical", AccessRule.MANAGEMENT, health.quorum_critical, "always 200"),
    *access.ROUTES,
    *policies.ROUTES,
    *definitions.ROUTES,
    *control.ROUTES,
)
