"""All routes: path, method, who may, and what answers. A test walks every row with every tag.

HEAD goes with GET, and OPTIONS with everything. Where the path names a {vhost}, only those get there who see it. A row
that touches queues or exchanges asks `broker.permissions` besides what stands here.
"""

from __future__ import annotations

from typing import Final

from warren.management import health, index, queues, server
from warren.management.aliveness import aliveness
from warren.management.routing import Handler, Route
from warren.management.who import Who

_CHECKS: Final = "/api/health/checks"


def _get(path: str, who: Who, handler: Handler) -> Route:
    return Route(path, "GET", who, handler)


ROUTES: Final[tuple[Route, ...]] = (
    Route("/", "GET", Who.ANYBODY, index.page, index.HTML),
    _get("/api", Who.ANYBODY, lambda asked: index.listing(ROUTES)),
    _get("/api/overview", Who.MANAGEMENT, server.overview),
    _get("/api/whoami", Who.MANAGEMENT, server.whoami),
    _get("/api/version", Who.ANYBODY, server.version),
    _get("/api/cluster-name", Who.MANAGEMENT, server.cluster_name),
    _get("/api/nodes", Who.MONITORING, server.nodes),
    _get("/api/nodes/{node}", Who.MONITORING, server.node),
    _get("/api/vhosts", Who.MANAGEMENT, server.vhosts),
    _get("/api/vhosts/{vhost}", Who.ADMINISTRATOR, server.vhost),
    _get("/api/queues", Who.MANAGEMENT, queues.every),
    _get("/api/queues/{vhost}", Who.MANAGEMENT, queues.of_vhost),
    _get("/api/queues/{vhost}/{name}", Who.MANAGEMENT, queues.one),
    _get("/api/aliveness-test/{vhost}", Who.MANAGEMENT, aliveness),
    _get(f"{_CHECKS}/alarms", Who.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/local-alarms", Who.MANAGEMENT, health.alarms),
    _get(f"{_CHECKS}/virtual-hosts", Who.MANAGEMENT, health.virtual_hosts),
    _get(f"{_CHECKS}/port-listener/{{port}}", Who.MANAGEMENT, health.port_listener),
    _get(f"{_CHECKS}/protocol-listener/{{protocol}}", Who.MANAGEMENT, health.protocol_listener),
    _get(f"{_CHECKS}/is-in-service", Who.ANYBODY, health.in_service),
    _get(f"{_CHECKS}/ready-to-serve-clients", Who.ANYBODY, health.in_service),
    _get(f"{_CHECKS}/node-is-quorum-critical", Who.MANAGEMENT, health.quorum_critical),
    _get(f"{_CHECKS}/node-is-mirror-sync-critical", Who.MANAGEMENT, health.quorum_critical),
)
