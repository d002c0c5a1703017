"""All routes: path, method, who may, and what answers. A test walks every row with every tag.

HEAD goes with GET, and OPTIONS with everything. Where the path names a {vhost}, only those get there who see it. A row
that touches queues or exchanges asks `broker.permissions` besides what stands here.
"""

from __future__ import annotations

from typing import Final

from warren.management import health, index, queues, server
from warren.management.aliveness import aliveness
from warren.management.routing import Handler, HttpRoute
from warren.management.who import AccessRule

_CHECKS: Final = "/api/health/checks"


def _get(path: str, who: AccessRule, handler: Handler) -> HttpRoute:
    return HttpRoute(path, "GET", who, handler)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute("/", "GET", AccessRule.ANYBODY, index.page, index.HTML),
    _get("/api", AccessRule.ANYBODY, lambda asked: index.listing(ROUTES)),
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
