"""Parameters, policies, operator policies and limits of vhosts in the API.

    /api/parameters          any parameter of a vhost, as it is stored      policymaker
    /api/global-parameters   parameters without a vhost                     policymaker
    /api/policies            one: policymaker; lists: management            of vhosts that the user sees
    /api/operator-policies   one: administrator; lists: management
    /api/vhost-limits        changes: administrator; lists: management, and monitoring sees all vhosts

A PUT or DELETE is answered when the change is durable and in effect on every queue of the vhost (`broker/policies`).

Fields, codes and texts are RabbitMQ's, which escapes markup in some of the texts and not in others. Where it answers
500 (a definition that is no object), this answers 400. It lets a policymaker evade limits of the operator by
`/api/parameters`: here operator policies are not changed by that path, and limits only by an administrator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from warren.broker.policies import (
    LIMITS,
    OPERATOR_POLICY,
    POLICY,
    VHOST_LIMITS,
    InvalidParameter,
    ParameterChange,
    check_limits,
    check_policy,
)
from warren.broker.vhost import Vhost
from warren.catalog import parameters
from warren.catalog.parameters import GLOBAL, ParameterRow
from warren.catalog.rows import RowWriter
from warren.management.listing import columns, listed_whole
from warren.management.requests import (
    AccessRule,
    HttpRefusal,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    bad_request,
    entered,
    not_found,
    sees_server,
    visible,
)

_LOG = logging.getLogger(__name__)
_KEYS_OF_POLICY: Final = ("pattern", "definition")
Item = dict[str, Any]


# -- parameters ------------------------------------------------------------------------------------------------------


def every_parameter(request: HttpRequest) -> Any:
    """Without policies, as in RabbitMQ: they have a list of their own."""
    found = _parameters(request, _visible(request))
    return listed_whole([item for item in found if item["component"] != POLICY], request.query)


def parameters_of_component(request: HttpRequest) -> Any:
    return listed_whole(_of_component(request, _visible(request)), request.query)


def parameters_of_vhost(request: HttpRequest) -> Any:
    return listed_whole(_of_component(request, [request.vhost]), request.query)


def one_parameter(request: HttpRequest) -> Any:
    row = _found(request, request.vhost, request.names["component"])
    return columns(_parameter_item(request.vhost, row), request.query)


def put_parameter(request: HttpRequest) -> Any:
    value = _required(request, "value")["value"]
    component, name = request.names["component"], request.names["name"]
    match component:
        case "policy" | "operator_policy":
            raise bad_request("policies may not be set using this method")
        case "vhost-limits":
            AccessRule.ADMINISTRATOR.check(request.user)
        case _:
            raise _escaped(InvalidParameter(f"component {component} not found"))
    if name != LIMITS:
        raise bad_request(InvalidParameter(f"{VHOST_LIMITS} has one parameter, {LIMITS}").what)
    try:
        limits = check_limits(value)
    except InvalidParameter as error:
        raise _escaped(error) from error
    return _put(request, component, name, lambda old: limits)


def delete_parameter(request: HttpRequest) -> Any:
    component = request.names["component"]
    _found(request, request.vhost, component)
    if component in (POLICY, OPERATOR_POLICY):
        raise bad_request("policies may not be cleared using this method")
    AccessRule.ADMINISTRATOR.check(request.user)
    return _delete(request, component)


def _of_component(request: HttpRequest, vhosts: Sequence[Vhost]) -> list[Item]:
    return [item for item in _parameters(request, vhosts) if item["component"] == request.names["component"]]


def _parameters(request: HttpRequest, vhosts: Sequence[Vhost]) -> list[Item]:
    return [_parameter_item(open_vhost, row) for open_vhost in vhosts for row in _rows(request, open_vhost)]


def _parameter_item(open_vhost: Vhost, row: ParameterRow) -> Item:
    return {"value": row.value, "vhost": open_vhost.row.name, "component": row.component, "name": row.name}


# -- global parameters -----------------------------------------------------------------------------------------------


def every_global(request: HttpRequest) -> Any:
    return listed_whole([{"name": row.name, "value": row.value} for row in _rows(request, None)], request.query)


def one_global(request: HttpRequest) -> Any:
    row = _found(request, None, GLOBAL)
    return columns({"name": row.name, "value": row.value}, request.query)


def put_global(request: HttpRequest) -> Any:
    value, name = _required(request, "value")["value"], request.names["name"]

    def write(writer: RowWriter) -> bool:
        existed = parameters.get(writer.connection, None, GLOBAL, name) is not None
        parameters.put(writer, None, GLOBAL, name, value)
        return existed

    existed = request.broker.catalog.change(write)
    _log(request, "parameter set", GLOBAL)
    return HttpResponse(None, 204 if existed else 201)


def delete_global(request: HttpRequest) -> Any:
    name = request.names["name"]
    if not request.broker.catalog.change(lambda writer: parameters.clear(writer, None, GLOBAL, name)):
        raise not_found()
    _log(request, "parameter cleared", GLOBAL)
    return HttpResponse(None, 204)


# -- policies --------------------------------------------------------------------------------------------------------


def every_policy(request: HttpRequest) -> Any:
    return listed_whole(_policies(request, _visible(request), POLICY), request.query)


def policies_of_vhost(request: HttpRequest) -> Any:
    return listed_whole(_policies(request, [request.vhost], POLICY), request.query)


def one_policy(request: HttpRequest) -> Any:
    return columns(_policy_item(request.vhost, _found(request, request.vhost, POLICY)), request.query)


def put_policy(request: HttpRequest) -> Any:
    body = _required(request, *_KEYS_OF_POLICY)
    try:
        value = check_policy(body)
    except InvalidParameter as error:
        raise _escaped(error) from error
    return _put(request, POLICY, request.names["name"], lambda old: value)


def delete_policy(request: HttpRequest) -> Any:
    return _delete(request, POLICY)


def every_operator_policy(request: HttpRequest) -> Any:
    return listed_whole(_policies(request, _visible(request), OPERATOR_POLICY), request.query)


def operator_policies_of_vhost(request: HttpRequest) -> Any:
    return listed_whole(_policies(request, [request.vhost], OPERATOR_POLICY), request.query)


def one_operator_policy(request: HttpRequest) -> Any:
    return columns(_policy_item(request.vhost, _found(request, request.vhost, OPERATOR_POLICY)), request.query)


def put_operator_policy(request: HttpRequest) -> Any:
    value = check_policy(_required(request, *_KEYS_OF_POLICY), is_operator=True)
    return _put(request, OPERATOR_POLICY, request.names["name"], lambda old: value)


def delete_operator_policy(request: HttpRequest) -> Any:
    return _delete(request, OPERATOR_POLICY)


def _policies(request: HttpRequest, vhosts: Sequence[Vhost], component: str) -> list[Item]:
    return [
        _policy_item(open_vhost, row)
        for open_vhost in vhosts
        for row in _rows(request, open_vhost)
        if row.component == component
    ]


def _policy_item(open_vhost: Vhost, row: ParameterRow) -> Item:
    shown = {key: row.value[key] for key in ("pattern", "apply-to", "definition", "priority")}
    return {"vhost": open_vhost.row.name, "name": row.name, **shown}


# -- limits of vhosts ------------------------------------------------------------------------------------------------


def every_limit(request: HttpRequest) -> Any:
    """Users who see the server see all vhosts."""
    broker, user = request.broker, request.user
    return listed_whole(_limits(broker.vhosts.every() if sees_server(user) else visible(broker, user)), request.query)


def limits_of_vhost(request: HttpRequest) -> Any:
    broker, name = request.broker, request.names["name"]
    if sees_server(request.user):
        return listed_whole(_limits([broker.vhosts.find(name)]), request.query)
    return listed_whole(_limits([entered(broker, request.user, name)]), request.query)


def put_limit(request: HttpRequest) -> Any:
    value, limit = _required(request, "value")["value"], request.names["limit"]
    _put(request, VHOST_LIMITS, LIMITS, lambda old: check_limits({**(old or {}), limit: value}))
    return HttpResponse(None, 204)


def delete_limit(request: HttpRequest) -> Any:
    limit = request.names["limit"]
    _put(
        request,
        VHOST_LIMITS,
        LIMITS,
        lambda old: {name: value for name, value in (old or {}).items() if name != limit} or None,
    )
    return HttpResponse(None, 204)


def _limits(vhosts: Sequence[Vhost]) -> list[Item]:
    found = [(each.row.name, dict(each.policies.limits)) for each in vhosts]
    return [{"vhost": name, "value": limits} for name, limits in found if limits]


# -- helpers ---------------------------------------------------------------------------------------------------------


def _put(request: HttpRequest, component: str, name: str, change: Callable[[Any], Any]) -> HttpResponse:
    """201: created; 204: replaced."""
    existed = _apply(request, component, name, change)
    _log(request, "parameter set", component)
    return HttpResponse(None, 204 if existed else 201)


def _delete(request: HttpRequest, component: str) -> HttpResponse:
    if not _apply(request, component, request.names["name"], lambda old: None):
        raise not_found()
    _log(request, "parameter cleared", component)
    return HttpResponse(None, 204)


def _apply(request: HttpRequest, component: str, name: str, change: Callable[[Any], Any]) -> bool:
    """Whether the parameter existed."""
    changed = ParameterChange(request.vhost, component, name, change)
    request.vhost.apply(changed)
    if component != VHOST_LIMITS:
        request.vhost.apply_policies()
    return changed.existed


def _required(request: HttpRequest, *keys: str) -> Mapping[str, Any]:
    missing = [key for key in keys if key not in request.body]
    if missing:
        raise bad_request(f"[{','.join(f'{{key_missing,{key}}}' for key in missing)}]")
    return request.body


def _escaped(error: InvalidParameter) -> HttpRefusal:
    return bad_request(escape(error.what, quote=False))


def _visible(request: HttpRequest) -> list[Vhost]:
    return visible(request.broker, request.user)


def _rows(request: HttpRequest, open_vhost: Vhost | None) -> list[ParameterRow]:
    with request.broker.catalog.reading() as connection:
        return parameters.every(connection, None if open_vhost is None else open_vhost.row.id)


def _found(request: HttpRequest, open_vhost: Vhost | None, component: str) -> ParameterRow:
    vhost_id = None if open_vhost is None else open_vhost.row.id
    with request.broker.catalog.reading() as connection:
        row = parameters.get(connection, vhost_id, component, request.names["name"])
    if row is None:
        raise not_found()
    return row


def _log(request: HttpRequest, event: str, component: str) -> None:
    facts = {"component": component, "by": request.user.name, **request.names}
    _LOG.info(event, extra={"facts": facts})


_PARAMETER, _GLOBAL_PARAMETER = "/api/parameters/{component}/{vhost}/{name}", "/api/global-parameters/{name}"
_POLICY, _OPERATOR_POLICY = "/api/policies/{vhost}/{name}", "/api/operator-policies/{vhost}/{name}"
_LIMIT: Final = "/api/vhost-limits/{vhost}/{limit}"

ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute(
        "/api/parameters",
        "GET",
        AccessRule.POLICYMAKER,
        every_parameter,
        summary="parameters of vhosts that the user sees, without policies",
    ),
    HttpRoute(
        "/api/parameters/{component}",
        "GET",
        AccessRule.POLICYMAKER,
        parameters_of_component,
        summary="of one component",
    ),
    HttpRoute(
        "/api/parameters/{component}/{vhost}",
        "GET",
        AccessRule.POLICYMAKER,
        parameters_of_vhost,
        summary="in one vhost",
    ),
    HttpRoute(_PARAMETER, "GET", AccessRule.POLICYMAKER, one_parameter, summary="one parameter"),
    HttpRoute(
        _PARAMETER,
        "PUT",
        AccessRule.POLICYMAKER,
        put_parameter,
        summary="set it: `value`; only `vhost-limits`, by an administrator",
    ),
    HttpRoute(_PARAMETER, "DELETE", AccessRule.POLICYMAKER, delete_parameter, summary="clear it; the same"),
    HttpRoute(
        "/api/global-parameters", "GET", AccessRule.POLICYMAKER, every_global, summary="parameters without a vhost"
    ),
    HttpRoute(_GLOBAL_PARAMETER, "GET", AccessRule.POLICYMAKER, one_global, summary="one of them"),
    HttpRoute(_GLOBAL_PARAMETER, "PUT", AccessRule.POLICYMAKER, put_global, summary="set it: `value`, any JSON"),
    HttpRoute(_GLOBAL_PARAMETER, "DELETE", AccessRule.POLICYMAKER, delete_global, summary="clear it"),
    HttpRoute(
        "/api/policies", "GET", AccessRule.MANAGEMENT, every_policy, summary="policies of vhosts that the user sees"
    ),
    HttpRoute("/api/policies/{vhost}", "GET", AccessRule.MANAGEMENT, policies_of_vhost, summary="of one vhost"),
    HttpRoute(_POLICY, "GET", AccessRule.POLICYMAKER, one_policy, summary="one policy"),
    HttpRoute(
        _POLICY,
        "PUT",
        AccessRule.POLICYMAKER,
        put_policy,
        summary="set it: `pattern`, `definition`, `priority`, `apply-to`",
    ),
    HttpRoute(_POLICY, "DELETE", AccessRule.POLICYMAKER, delete_policy, summary="clear it"),
    HttpRoute(
        "/api/operator-policies",
        "GET",
        AccessRule.MANAGEMENT,
        every_operator_policy,
        summary="operator policies of vhosts that the user sees",
    ),
    HttpRoute(
        "/api/operator-policies/{vhost}",
        "GET",
        AccessRule.MANAGEMENT,
        operator_policies_of_vhost,
        summary="of one vhost",
    ),
    HttpRoute(_OPERATOR_POLICY, "GET", AccessRule.ADMINISTRATOR, one_operator_policy, summary="one of them"),
    HttpRoute(_OPERATOR_POLICY, "PUT", AccessRule.ADMINISTRATOR, put_operator_policy, summary="set it"),
    HttpRoute(_OPERATOR_POLICY, "DELETE", AccessRule.ADMINISTRATOR, delete_operator_policy, summary="clear it"),
    HttpRoute("/api/vhost-limits", "GET", AccessRule.MANAGEMENT, every_limit, summary="limits of vhosts"),
    HttpRoute("/api/vhost-limits/{name}", "GET", AccessRule.MANAGEMENT, limits_of_vhost, summary="of one vhost"),
    HttpRoute(
        _LIMIT,
        "PUT",
        AccessRule.ADMINISTRATOR,
        put_limit,
        summary="set `max-connections` or `max-queues`: `value`, negative: none",
    ),
    HttpRoute(_LIMIT, "DELETE", AccessRule.ADMINISTRATOR, delete_limit, summary="remove it"),
)
