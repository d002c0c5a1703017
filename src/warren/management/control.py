"""Control of the running broker by administrators: the routes of `warren ctl` that RabbitMQ's API does not have.

    POST /api/warren/stop                          an orderly stop, as by a signal; answered before it begins
    POST /api/warren/stop-app, start-app           close clients and their listener; listen again
    PUT  /api/warren/memory-limit                  {"relative": 0.4} or {"absolute": "2GB"}
    PUT  /api/warren/disk-limit                    {"mem_relative": 0.5} or {"absolute": "50MB"}
    PUT  /api/warren/log-level                     {"level": "debug", "category": "connection"}
    POST /api/warren/rotate-logs                   the file of the event log is opened again
    GET  /api/warren/environment                   the options in effect, without secrets
    POST /api/warren/authenticate                  {"username": …, "password": …}: 200, or 401

Limits and levels last until the process ends; the configuration has the lasting ones. What they do: `app.control`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from warren.management.requests import AccessRule, HttpRequest, HttpRoute, bad_request, login_failed
from warren.server.authentication import Login, LoginRefused

_THIS_MACHINE: Final = "127.0.0.1"  # users that may log in from this machine only are checked, too


class BrokerControl(Protocol):
    """Actions on the running broker (`app.control`). Called by worker threads; an action returns when it is done."""

    def stop(self) -> None:
        """Begin an orderly stop of the process, as a signal does."""
        ...

    def suspend_clients(self) -> None: ...

    def resume_clients(self) -> None: ...

    def set_memory_limit(self, absolute: str | None, relative: float | None) -> int:
        """Bytes with a unit, or a share of the memory of the machine; the limit in bytes."""
        ...

    def set_disk_limit(self, absolute: str | None, relative: float | None) -> int: ...

    def set_log_level(self, category: str, level: str) -> None: ...

    def reopen_log(self) -> None: ...

    def environment(self) -> dict[str, dict[str, str]]:
        """The options in effect, by group; no secrets."""
        ...


def stop(request: HttpRequest) -> Any:
    request.broker.control.stop()
    return {}


def stop_app(request: HttpRequest) -> Any:
    request.broker.control.suspend_clients()
    return {}


def start_app(request: HttpRequest) -> Any:
    request.broker.control.resume_clients()
    return {}


def set_memory_limit(request: HttpRequest) -> Any:
    limit = request.broker.control.set_memory_limit(_size(request), _share(request, "relative", 1.0))
    return {"limit_bytes": limit}


def set_disk_limit(request: HttpRequest) -> Any:
    limit = request.broker.control.set_disk_limit(_size(request), _share(request, "mem_relative", 10.0))
    return {"limit_bytes": limit}


def set_log_level(request: HttpRequest) -> Any:
    level, category = request.body.get("level"), request.body.get("category", "")
    if not isinstance(level, str) or not isinstance(category, str):
        raise bad_request("level and category are texts")
    request.broker.control.set_log_level(category, level)
    return {}


def rotate_logs(request: HttpRequest) -> Any:
    request.broker.control.reopen_log()
    return {}


def environment(request: HttpRequest) -> Any:
    return request.broker.control.environment()


def authenticate(request: HttpRequest) -> Any:
    """Delays for repeated failures are those of a login at the local socket."""
    name, password = request.body.get("username"), request.body.get("password")
    if not isinstance(name, str) or not isinstance(password, str):
        raise bad_request("username and password are texts")
    try:
        user = request.broker.users.check(Login(name, password, "HTTP"), _THIS_MACHINE)
    except LoginRefused as error:
        raise login_failed() from error
    return {"name": user.name, "tags": list(user.tags)}


def _size(request: HttpRequest) -> str | None:
    value = request.body.get("absolute")
    if value is not None and not isinstance(value, str | int):
        raise bad_request("absolute is a size: 2GB")
    return None if value is None else str(value)


def _share(request: HttpRequest, name: str, most: float) -> float | None:
    value = request.body.get(name)
    if (value is None) == (request.body.get("absolute") is None):
        raise bad_request(f"either absolute or {name} is needed")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise bad_request(f"{name} is a share of the memory of the machine, from 0 to {most:g}")
    return float(value)


def _route(method: str, path: str, handler: Any, summary: str) -> HttpRoute:
    return HttpRoute(f"/api/warren/{path}", method, AccessRule.ADMINISTRATOR, handler, summary=summary)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    _route("POST", "stop", stop, "stop the broker, as by SIGTERM"),
    _route("POST", "stop-app", stop_app, "close the AMQP port and all connections; the process stays"),
    _route("POST", "start-app", start_app, "open the AMQP port again"),
    _route(
        "PUT",
        "memory-limit",
        set_memory_limit,
        "`relative` or `absolute`, as `set_vm_memory_high_watermark`; until the next start",
    ),
    _route(
        "PUT",
        "disk-limit",
        set_disk_limit,
        "`absolute` or `mem_relative`, as `set_disk_free_limit`; until the next start",
    ),
    _route("PUT", "log-level", set_log_level, "`level`, and `category`; until the next start"),
    _route("POST", "rotate-logs", rotate_logs, "open the log file again"),
    _route("GET", "environment", environment, "the configuration in effect"),
    _route("POST", "authenticate", authenticate, "whether `username` and `password` are right"),
)
