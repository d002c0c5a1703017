"""Users, vhosts, permissions, topic permissions and user limits in the API.

    GET     rows of the catalog, in RabbitMQ's fields        PUT, DELETE, POST   one change of `broker.administration`

A change is durable, and has reached all open connections, before it is answered. Passwords are hashed in the worker
thread of the request, before the change begins.

Refusals have RabbitMQ's status and reason, e.g. {"error": "bad_request", "reason": "tags_not_present"}. Differences:
a value of a wrong type is 400, where RabbitMQ answers 500 or stores it; a pattern that cannot be used, and an unknown
hashing algorithm, are refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from warren.base.ids import UserId, VhostId
from warren.broker.auth.administration import NO_PASSWORD, AccessChange, BadLimit, Credentials, Patterns, UnknownUser
from warren.broker.auth.passwords import NEW_PASSWORDS, Hashing, checked_hashing, hashed, is_readable
from warren.broker.vhosts import UnknownVhost
from warren.catalog import permissions, users, vhosts
from warren.catalog.permissions import PermissionRow, TopicPermissionRow
from warren.catalog.users import UserRow
from warren.management.broker_facts import BrokerView
from warren.management.listing import Item, columns, listed_whole
from warren.management.requests import (
    SOCKET_USER,
    AccessRule,
    Handler,
    HttpRefusal,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    bad_request,
    not_found,
)

Result = TypeVar("Result")
Row = TypeVar("Row", PermissionRow, TopicPermissionRow)
_CREATED: Final = HttpResponse(None, 201)
_DONE: Final = HttpResponse(None, 204)
_ALL: Final = Patterns(".*", ".*", ".*")


# -- users -------------------------------------------------------------------------------------------------------


def every_user(request: HttpRequest) -> Any:
    with request.broker.catalog.reading() as connection:
        return _listed(request, [_user_item(row) for row in users.every(connection)])


def users_without_permissions(request: HttpRequest) -> Any:
    with request.broker.catalog.reading() as connection:
        permitted = {each.user_id for each in permissions.every(connection)}
        return _listed(request, [_user_item(row) for row in users.every(connection) if row.id not in permitted])


def one_user(request: HttpRequest) -> Any:
    return columns(_user_item(_user(request)), request.query)


def put_user(request: HttpRequest) -> Any:
    """Without password and hash the user has no password, as in RabbitMQ."""
    body = request.body
    if "tags" not in body and body.get("administrator") is not True:
        raise bad_request("tags_not_present")
    tags = tags_of(body["tags"]) if "tags" in body else ["administrator"]
    limits = body.get("limits")
    if limits is not None and not isinstance(limits, Mapping):
        raise bad_request("limits must be an object")
    credentials, name = credentials_of(body, request.broker), request.names["user"]

    def change(change: AccessChange) -> bool:
        return change.put_user(name, credentials, tags, limits)

    return _put(_limited(request, change))


def delete_user(request: HttpRequest) -> Any:
    request.broker.administration.change(lambda change: change.delete_user(request.names["user"]))
    return _DONE


def delete_users(request: HttpRequest) -> Any:
    """All of them or none; RabbitMQ deletes those before the first unknown one."""
    names = _required(request.body, "users")[0]
    if not isinstance(names, list):
        raise bad_request("users must be a list of names")

    def change(change: AccessChange) -> None:
        for name in dict.fromkeys(map(_checked_name, names)):
            change.delete_user(name)

    try:
        request.broker.administration.change(change)
    except UnknownUser as error:
        raise bad_request(["no_such_user", error.name]) from error
    return _DONE


def credentials_of(body: Mapping[str, Any], broker: BrokerView) -> Credentials:
    """The password is hashed here: it takes some 50 ms, and no lock is held."""
    if "password" in body and "password_hash" in body:
        raise bad_request("both_password_and_password_hash_are_provided")
    if body.get("password"):
        hashing = NEW_PASSWORDS[broker.settings.password_hashing]
        password = _text(body, "password")
        return Credentials(hashed(password, broker.environment.rng, hashing=hashing), hashing.value)
    if "password" in body or "password_hash" not in body:
        _text(body, "password", "")
        return NO_PASSWORD
    hashing = checked_hashing(_text(body, "hashing_algorithm", ""))
    password_hash = body["password_hash"]
    if not isinstance(password_hash, str) or not is_readable(password_hash, hashing):
        if hashing is Hashing.SCRYPT:
            raise bad_request("password_hash is not a hash by scrypt of this form: scrypt$ln=14,r=8,p=1$SALT$HASH")
        raise bad_request(["not_base64", password_hash])
    return Credentials(password_hash, hashing.value)


def _user_item(row: UserRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "password_hash": row.password_hash,
        "hashing_algorithm": row.hashing_algorithm,
        "tags": list(row.tags),
        "limits": dict(row.limits),
    }


# -- user limits -------------------------------------------------------------------------------------------------


def every_user_limit(request: HttpRequest) -> Any:
    with request.broker.catalog.reading() as connection:
        return _listed(request, _limit_items(users.every(connection)))


def limits_of_user(request: HttpRequest) -> Any:
    return _listed(request, _limit_items([_user(request)]))


def put_user_limit(request: HttpRequest) -> Any:
    value = _required(request.body, "value")[0]
    user, limit = request.names["user"], request.names["limit"]
    try:
        _limited(request, lambda change: change.set_user_limit(user, limit, value))
    except UnknownUser as error:
        raise bad_request(["no_such_user", user]) from error
    return _DONE


def delete_user_limit(request: HttpRequest) -> Any:
    user, limit = request.names["user"], request.names["limit"]
    request.broker.administration.change(lambda change: change.clear_user_limit(user, limit))
    return _DONE


def _limited(request: HttpRequest, change: Callable[[AccessChange], Result]) -> Result:
    try:
        return request.broker.administration.change(change)
    except BadLimit as error:
        raise bad_request(error.what) from error


def _limit_items(rows: Sequence[UserRow]) -> list[Item]:
    return [{"user": row.name, "value": dict(row.limits)} for row in rows if row.limits]


# -- vhosts ------------------------------------------------------------------------------------------------------


def put_vhost(request: HttpRequest) -> Any:
    """The user who creates a vhost gets all permissions in it, as in RabbitMQ. `tracing` and `default_queue_type` are
    validated, otherwise ignored."""
    body, name, user = request.body, request.names["vhost"], request.user
    description, tags = _text(body, "description", ""), tags_of(body.get("tags", ""))
    _text(body, "default_queue_type", "")
    if str(tracing := body.get("tracing", False)).lower() not in ("true", "false"):
        raise bad_request(["not_boolean", tracing])

    def change(change: AccessChange) -> bool:
        is_new = change.put_vhost(name, description, tags)
        if is_new and user is not SOCKET_USER:
            change.put_permissions(user.name, name, _ALL)
        return is_new

    return _put(request.broker.administration.change(change))


def delete_vhost(request: HttpRequest) -> Any:
    """Answered when its messages are removed."""
    request.broker.administration.change(lambda change: change.delete_vhost(request.names["vhost"]))
    return _DONE


def start_vhost(request: HttpRequest) -> Any:
    """A vhost that is served stays as it is."""
    node, vhost = request.names["node"], request.names["vhost"]
    if node != request.broker.node:
        raise bad_request(f"Request to node {node} failed with nodedown")
    try:
        request.broker.administration.start_vhost(vhost)
    except UnknownVhost as error:
        raise bad_request(f'Request to node {node} failed with {{no_such_vhost,<<"{vhost}">>}}') from error
    return _DONE


# -- permissions -------------------------------------------------------------------------------------------------


def every_permission(request: HttpRequest) -> Any:
    return _listed(request, _permission_items(request))


def permissions_of_user(request: HttpRequest) -> Any:
    return _listed(request, _permission_items(request, user_id=_user(request).id))


def permissions_of_vhost(request: HttpRequest) -> Any:
    return _listed(request, _permission_items(request, vhost_id=request.vhost.row.id))


def one_permission(request: HttpRequest) -> Any:
    items = _permission_items(request, _user(request).id, request.vhost.row.id)
    if not items:
        raise not_found()
    return columns(items[0], request.query)


def put_permission(request: HttpRequest) -> Any:
    _required(request.body, *Patterns._fields)
    patterns = Patterns(*(_text(request.body, name) for name in Patterns._fields))
    user, vhost = request.names["user"], request.names["vhost"]
    return _put_pair(request, lambda change: change.put_permissions(user, vhost, patterns))


def delete_permission(request: HttpRequest) -> Any:
    user, vhost = request.names["user"], request.names["vhost"]
    if not request.broker.administration.change(lambda change: change.clear_permissions(user, vhost)):
        raise not_found()
    return _DONE


def every_topic_permission(request: HttpRequest) -> Any:
    return _listed(request, _topic_items(request))


def topic_permissions_of_user(request: HttpRequest) -> Any:
    return _listed(request, _topic_items(request, user_id=_user(request).id))


def topic_permissions_of_vhost(request: HttpRequest) -> Any:
    return _listed(request, _topic_items(request, vhost_id=request.vhost.row.id))


def topic_permissions_of_pair(request: HttpRequest) -> Any:
    """A user in a vhost: one item for each exchange, whatever exchange the path names, as in RabbitMQ."""
    items = _topic_items(request, _user(request).id, request.vhost.row.id)
    if not items:
        raise not_found()
    return _listed(request, items)


def put_topic_permission(request: HttpRequest) -> Any:
    _required(request.body, "exchange", "write", "read")
    exchange, write, read = (_text(request.body, name) for name in ("exchange", "write", "read"))
    user, vhost = request.names["user"], request.names["vhost"]
    return _put_pair(request, lambda change: change.put_topic_permissions(user, vhost, exchange, write, read))


def delete_topic_permissions(request: HttpRequest) -> Any:
    """For the exchange in the path, or for all."""
    user, vhost, exchange = request.names["user"], request.names["vhost"], request.names.get("exchange")

    def change(change: AccessChange) -> bool:
        return change.clear_topic_permissions(user, vhost, exchange)

    if not request.broker.administration.change(change):
        raise not_found()
    return _DONE


def _put_pair(request: HttpRequest, change: Callable[[AccessChange], bool]) -> HttpResponse:
    try:
        return _put(request.broker.administration.change(change))
    except (UnknownUser, UnknownVhost) as error:
        raise bad_request("vhost_or_user_not_found") from error


def _permission_items(
    request: HttpRequest, user_id: UserId | None = None, vhost_id: VhostId | None = None
) -> list[dict[str, Any]]:
    found = _with_names(request, permissions.every, user_id, vhost_id)
    return [names | {"configure": row.configure, "write": row.write, "read": row.read} for names, row in found]


def _topic_items(
    request: HttpRequest, user_id: UserId | None = None, vhost_id: VhostId | None = None
) -> list[dict[str, Any]]:
    found = _with_names(request, permissions.every_topic, user_id, vhost_id)
    items = [names | {"exchange": row.exchange, "write": row.write, "read": row.read} for names, row in found]
    return sorted(items, key=itemgetter("vhost", "user", "exchange"))


def _with_names(
    request: HttpRequest, read: Callable[..., list[Row]], user_id: UserId | None, vhost_id: VhostId | None
) -> list[tuple[dict[str, Any], Row]]:
    """Rows with the names of their vhost and user, in the order of these."""
    with request.broker.catalog.reading() as connection:
        rows = read(connection, user_id, vhost_id)
        user_names = {row.id: row.name for row in users.every(connection)}
        vhost_names = {row.id: row.name for row in vhosts.every(connection)}
    named = [({"user": user_names[row.user_id], "vhost": vhost_names[row.vhost_id]}, row) for row in rows]
    return sorted(named, key=lambda pair: (pair[0]["vhost"], pair[0]["user"]))


# -- requests ----------------------------------------------------------------------------------------------------


def _user(request: HttpRequest) -> UserRow:
    with request.broker.catalog.reading() as connection:
        row = users.get(connection, request.names["user"])
    if row is None:
        raise not_found()
    return row


def _put(is_new: bool) -> HttpResponse:
    return _CREATED if is_new else _DONE


def _listed(request: HttpRequest, items: Sequence[Item]) -> Any:
    return listed_whole(items, request.query)


def _required(body: Mapping[str, Any], *names: str) -> list[Any]:
    missing = [f"{{key_missing,{name}}}" for name in names if name not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")
    return [body[name] for name in names]


def _text(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise _not_text(name)
    return value


def tags_of(value: Any) -> list[str]:
    """A list, or a text with commas."""
    tags = value.split(",") if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _not_text("tags")
    return [tag.strip() for tag in tags if tag.strip()]


def _checked_name(value: Any) -> str:
    if not isinstance(value, str):
        raise bad_request(["no_such_user", value])
    return value


def _not_text(name: str) -> HttpRefusal:
    return bad_request(f"{name} must be text")


def _route(path: str, method: str, handler: Handler, summary: str, opens_vhost: bool = True) -> HttpRoute:
    rule = AccessRule.ADMINISTRATOR
    return HttpRoute(f"/api/{path}", method, rule, handler, opens_vhost=opens_vhost, summary=summary)


_PERMISSION: Final = "permissions/{vhost}/{user}"
_TOPIC_PERMISSION: Final = "topic-permissions/{vhost}/{user}"

ROUTES: Final[tuple[HttpRoute, ...]] = (
    _route("users", "GET", every_user, "users, with tags, limits and password hashes"),
    _route("users/without-permissions", "GET", users_without_permissions, "users without a permission in any vhost"),
    _route("users/bulk-delete", "POST", delete_users, "delete `users`, a list of names: all or none"),
    _route("users/{user}", "GET", one_user, "one user"),
    _route("users/{user}", "PUT", put_user, "`password`, or `password_hash` and `hashing_algorithm`; `tags`; `limits`"),
    _route("users/{user}", "DELETE", delete_user, "also closes the user's connections"),
    _route("users/{user}/permissions", "GET", permissions_of_user, "permissions of a user"),
    _route("users/{user}/topic-permissions", "GET", topic_permissions_of_user, "topic permissions of a user"),
    HttpRoute("/api/user-limits", "GET", AccessRule.MANAGEMENT, every_user_limit, summary="users with limits"),
    HttpRoute("/api/user-limits/{user}", "GET", AccessRule.MANAGEMENT, limits_of_user, summary="limits of a user"),
    _route(
        "user-limits/{user}/{limit}",
        "PUT",
        put_user_limit,
        "`value` of `max-connections` or `max-channels`; below 0: no limit",
    ),
    _route("user-limits/{user}/{limit}", "DELETE", delete_user_limit, "no limit"),
    _route(
        "vhosts/{vhost}", "PUT", put_vhost, "`description`, `tags`; the creator gets all permissions", opens_vhost=False
    ),
    _route(
        "vhosts/{vhost}", "DELETE", delete_vhost, "with everything in it; closes its connections", opens_vhost=False
    ),
    _route("vhosts/{vhost}/permissions", "GET", permissions_of_vhost, "permissions in a vhost"),
    _route("vhosts/{vhost}/topic-permissions", "GET", topic_permissions_of_vhost, "topic permissions in a vhost"),
    _route("vhosts/{vhost}/start/{node}", "POST", start_vhost, "serve a vhost whose start failed", opens_vhost=False),
    _route("permissions", "GET", every_permission, "all permissions"),
    _route(_PERMISSION, "GET", one_permission, "permissions of a user in a vhost"),
    _route(_PERMISSION, "PUT", put_permission, "patterns `configure`, `write`, `read`", opens_vhost=False),
    _route(_PERMISSION, "DELETE", delete_permission, "connections stay open, and may do nothing", opens_vhost=False),
    _route("topic-permissions", "GET", every_topic_permission, "all topic permissions"),
    _route(_TOPIC_PERMISSION, "GET", topic_permissions_of_pair, "one item for each exchange"),
    _route(
        _TOPIC_PERMISSION,
        "PUT",
        put_topic_permission,
        "`exchange`, and patterns `write`, `read` of routing keys",
        opens_vhost=False,
    ),
    _route(_TOPIC_PERMISSION, "DELETE", delete_topic_permissions, "for all exchanges", opens_vhost=False),
    _route(f"{_TOPIC_PERMISSION}/{{exchange}}", "GET", topic_permissions_of_pair, "the same as without the exchange"),
    _route(
        f"{_TOPIC_PERMISSION}/{{exchange}}",
        "PUT",
        put_topic_permission,
        "the same as without the exchange",
        opens_vhost=False,
    ),
    _route(
        f"{_TOPIC_PERMISSION}/{{exchange}}", "DELETE", delete_topic_permissions, "for one exchange", opens_vhost=False
    ),
)
