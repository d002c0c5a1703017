"""The table of verbs. Parsing, help and tests come from it.

    Verb("add_user", "username password?", USERS, "Create a user …", _add_user, 'Adding user "{username}" ...')

Verbs of users, permissions, vhosts, policies, parameters, limits, queues, connections and definitions are here; those
about the broker itself are in `node`. A listing verb is a path of the API and a table from columns, under the names of
rabbitmqctl, to fields of the API.

`PUT /api/users/U` replaces tags and password together, and `PUT /api/vhosts/V` all metadata: a verb that changes one of
them sends the others as they are. An Erlang process id is shown as the name of the connection, channel or node.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from warren.cli.ctl import node
from warren.cli.ctl.call import Call, Verb, WrongUsage, bad_value, path
from warren.cli.ctl.client import SOFTWARE, UNAVAILABLE, USAGE, CtlError, UrlClient
from warren.cli.ctl.output import Document, Result, Rows, Sentence

USERS, ACCESS, VHOSTS, POLICIES = "Users", "Access control", "Virtual hosts", "Policies and parameters"
LISTS, QUEUES, CONNECTIONS, DEFINITIONS = "Lists", "Queues", "Connections", "Definitions"

_LISTED = "no-table-headers"
_FIRST_USER = "guest"

Field = str | Callable[[Mapping[str, Any], Call], Any]  # a field of the API, or a function of an item
Columns = Mapping[str, Field]

# -- lists ------------------------------------------------------------------------------------------------------------


def _inner(*names: str) -> Field:
    """A field of an object inside of the item."""

    def value(item: Mapping[str, Any], call: Call) -> Any:
        found: Any = item
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    return value


def _json_of(name: str) -> Field:
    return lambda item, call: json.dumps(item.get(name), separators=(",", ":"), ensure_ascii=False)


def _own_node(item: Mapping[str, Any], call: Call) -> Any:
    return item.get("node", call.node)


def _protocol(item: Mapping[str, Any], call: Call) -> Any:
    return "{0,9,1}" if item.get("protocol") == "AMQP 0-9-1" else item.get("protocol")


def _same(*names: str) -> dict[str, Field]:
    return {name: name for name in names}


# fmt: off
QUEUE_COLUMNS: Columns = {
    **_same("name", "durable", "auto_delete", "arguments", "policy", "exclusive", "messages_ready",
            "messages_unacknowledged", "messages", "messages_ready_ram", "messages_unacknowledged_ram", "messages_ram",
            "messages_persistent", "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged",
            "message_bytes_ram", "message_bytes_persistent", "head_message_timestamp", "disk_reads", "disk_writes",
            "consumers", "consumer_utilisation", "consumer_capacity", "memory", "state", "type", "operator_policy",
            "effective_policy_definition", "exclusive_consumer_tag"),
    "pid": _own_node, "leader": _own_node, "members": lambda item, call: [_own_node(item, call)],
    "online": lambda item, call: [_own_node(item, call)], "owner_pid": _inner("owner_pid_details", "name"),
    "exclusive_consumer_pid": _inner("exclusive_consumer_pid"), "slave_pids": lambda item, call: [],
    "synchronised_slave_pids": lambda item, call: [],
}
EXCHANGE_COLUMNS: Columns = _same("name", "type", "durable", "auto_delete", "internal", "arguments", "policy")
BINDING_COLUMNS: Columns = {
    "source_name": "source", "source_kind": lambda item, call: "exchange", "destination_name": "destination",
    "destination_kind": "destination_type", "routing_key": "routing_key", "arguments": "arguments",
}
CONNECTION_COLUMNS: Columns = {
    **_same("name", "port", "host", "peer_port", "peer_host", "ssl", "ssl_protocol", "ssl_key_exchange", "ssl_cipher",
            "ssl_hash", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "state", "channels",
            "auth_mechanism", "user", "vhost", "timeout", "frame_max", "channel_max", "client_properties", "recv_oct",
            "recv_cnt", "send_oct", "send_cnt", "send_pend", "connected_at", "user_provided_name"),
    "pid": "name", "protocol": _protocol,
}
CHANNEL_COLUMNS: Columns = {
    **_same("name", "number", "user", "vhost", "transactional", "confirm", "consumer_count", "messages_unacknowledged",
            "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed", "prefetch_count",
            "global_prefetch_count", "state"),
    "pid": "name", "connection": _inner("connection_details", "name"),
}
CONSUMER_COLUMNS: Columns = {
    "queue_name": _inner("queue", "name"), "channel_pid": _inner("channel_details", "name"),
    **_same("consumer_tag", "ack_required", "prefetch_count", "active", "activity_status", "arguments"),
}
_CONSUMER_DEFAULTS = "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments"
VHOST_COLUMNS: Columns = _same("name", "tracing", "description", "tags", "cluster_state", "default_queue_type",
                               "metadata")
POLICY_COLUMNS: Columns = {**_same("vhost", "name", "pattern", "apply-to"), "definition": _json_of("definition"),
                           "priority": "priority"}
# fmt: on


def _rows(items: list[Mapping[str, Any]], columns: Columns, call: Call) -> Rows:
    rows = [[_value(item, field, call) for field in columns.values()] for item in items]
    return Rows(list(columns), rows)


def _value(item: Mapping[str, Any], field: Field, call: Call) -> Any:
    return item.get(field) if isinstance(field, str) else field(item, call)


def _listing(columns: Columns, *parts: str) -> Callable[[Call], Result]:
    """All columns of a path, whose parts may name arguments: {username}."""

    def run(call: Call) -> Result:
        return _rows(call.get(*(part.format_map(call) for part in parts)), columns, call)

    return run


def _selection(columns: Columns, defaults: str, *parts: str) -> Callable[[Call], Result]:
    """The columns that are named on the command line. A vhost that does not exist has an empty list, as in rabbitmqctl,
    and a note on standard error."""

    def run(call: Call) -> Result:
        if call.has("offline"):
            return Rows([], [])
        chosen = {name: columns[name] for name in _chosen(call) or defaults.split()}
        fields = [field for field in chosen.values() if isinstance(field, str)]
        query = {"columns": ",".join(dict.fromkeys(fields))} if len(fields) == len(chosen) else {}
        where = path(*(part.format_map(call) for part in parts), **query)
        answer = call.client.request("GET", where)
        if answer.is_good:
            return _rows(answer.content, chosen, call)
        refusal = call.refused(answer)
        if call.verb.is_vhost and call.find("vhosts", call.vhost) is None:
            sys.stderr.write(f"Virtual host '{call.vhost}' does not exist\n")
            return Rows([], [])
        raise refusal

    return run


def _chosen(call: Call) -> list[str]:
    return [name for word in call.many for name in word.split(",") if name]


def _known(columns: Columns) -> Callable[[Call], None]:
    def validate(call: Call) -> None:
        unknown = [name for name in _chosen(call) if name not in columns]
        if unknown:
            raise WrongUsage(f"Info key(s) {','.join(unknown)} are not supported", USAGE)

    return validate


# -- users and permissions --------------------------------------------------------------------------------------------

_USER_ADDED = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See 'rabbitmqctl help set_permissions' to learn more."
)


def _has_name(call: Call) -> None:
    if not call["username"]:
        raise bad_value("user cannot be an empty string")


def _password(call: Call) -> str:
    return call["password"] if "password" in call.arguments else call.read_secret()


def _add_user(call: Call) -> Result:
    name = call["username"]
    body: dict[str, Any] = {"tags": ""}
    secret = _password(call)
    body["password_hash" if call.has("pre-hashed-password") or not secret else "password"] = secret
    if call.find("users", name) is not None:
        raise CtlError(SOFTWARE, f'User "{name}" already exists')
    call.put("users", name, **body)
    return Sentence(_USER_ADDED, {"message": _USER_ADDED, "node": call.node, "status": "ok"})


def _delete_user(call: Call) -> None:
    call.user()
    call.delete("users", call["username"])


def _change_password(call: Call) -> None:
    tags = call.user().get("tags", [])
    secret = _password(call)
    call.put("users", call["username"], tags=tags, **({"password": secret} if secret else {"password_hash": ""}))


def _clear_password(call: Call) -> None:
    call.put("users", call["username"], tags=call.user().get("tags", []), password_hash="")


def _set_user_tags(call: Call) -> None:
    kept = {name: call.user()[name] for name in ("password_hash", "hashing_algorithm") if name in call.user()}
    call.put("users", call["username"], tags=",".join(call.many), **kept)


def _tags_banner(call: Call) -> str:
    whose = f'user "{call["username"]}"' if call["username"] else f'virtual host "{call["virtual_host"]}"'
    return f"Setting tags for {whose} to [{', '.join(call.many)}] ..."


def _authenticate_user(call: Call) -> Result:
    name, secret = call["username"], _password(call)
    if node.is_login(call, name, secret):
        return Sentence("Success")
    text = f"Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
    raise CtlError(65, text)


def _set_permissions(call: Call) -> None:
    patterns = {name: call[name] for name in ("configure", "write", "read")}
    call.put("permissions", call.vhost, call["username"], **patterns)


def _clear_permissions(call: Call) -> None:
    """Permissions that do not exist are cleared, too: only the user and the vhost must exist."""
    answer = call.client.request("DELETE", path("permissions", call.vhost, call["username"]))
    if answer.status == 404:
        _require_user_and_vhost(call)
    elif not answer.is_good:
        raise call.refused(answer)


def _require_user_and_vhost(call: Call) -> None:
    if call.find("vhosts", call.vhost) is None:
        raise call.no_vhost(call.vhost)
    call.user()


def _set_topic_permissions(call: Call) -> None:
    body = {name: call[name] for name in ("exchange", "write", "read")}
    call.put("topic-permissions", call.vhost, call["username"], **body)


def _clear_topic_banner(call: Call) -> str:
    on = f'on "{call["exchange"]}" ' if call["exchange"] else ""
    return f'Clearing topic permissions {on}for user "{call["username"]}" in vhost "{call.vhost}" ...'


def _clear_topic_permissions(call: Call) -> None:
    """The API clears all exchanges at once: those that are not named are set again."""
    _require_user_and_vhost(call)
    found = call.find("topic-permissions", call.vhost, call["username"]) or []
    kept = [each for each in found if call["exchange"] and each["exchange"] != call["exchange"]]
    if len(kept) == len(found):
        return
    call.delete("topic-permissions", call.vhost, call["username"])
    for each in kept:
        fields = {name: each[name] for name in ("exchange", "write", "read")}
        call.put("topic-permissions", call.vhost, call["username"], **fields)


# -- vhosts, policies, parameters, limits -----------------------------------------------------------------------------


def _add_vhost(call: Call) -> None:
    if call.find("vhosts", call["virtual_host"]) is None:
        options = {name: call[name] for name in ("description", "tags") if call.has(name)}
        if call.has("default-queue-type"):
            options["default_queue_type"] = call["default-queue-type"]
        call.put("vhosts", call["virtual_host"], **options)
        if isinstance(call.client, UrlClient):  # by HTTP the creator gets all permissions; rabbitmqctl grants none
            call.delete("permissions", call["virtual_host"], call.client.user)


def _delete_vhost(call: Call) -> None:
    if call.find("vhosts", call["virtual_host"]) is None:
        raise call.no_vhost(call["virtual_host"])
    call.delete("vhosts", call["virtual_host"])


def _change_vhost(call: Call, name: str, **changed: Any) -> Any:
    """The vhost after the change."""
    found = call.find("vhosts", name)
    if found is None:
        raise call.no_vhost(name)
    fields = {"description": found.get("description", ""), "tags": ",".join(found.get("tags", []))}
    call.put("vhosts", name, **(fields | {"tracing": found.get("tracing", False)} | changed))
    return call.get("vhosts", name)


def _set_vhost_tags(call: Call) -> None:
    _change_vhost(call, call["virtual_host"], tags=",".join(call.many))


def _trace(is_on: bool) -> Callable[[Call], Result]:
    def run(call: Call) -> Result:
        if bool(_change_vhost(call, call.vhost, tracing=is_on).get("tracing")) != is_on:
            raise CtlError(UNAVAILABLE, f"{call.node} does not trace messages")
        return Sentence(f"Trace {'enabled' if is_on else 'disabled'} for vhost {call.vhost}")

    return run


def _set_policy(kind: str) -> Callable[[Call], None]:
    def run(call: Call) -> None:
        priority = call["priority"] or "0"
        if not priority.lstrip("-").isdecimal():
            raise CtlError(65, f"priority {priority!r} is no integer")
        body = {"pattern": call["pattern"], "definition": call.json_argument("definition"), "priority": int(priority)}
        where = path(kind, call.vhost, call["name"])
        call.send("PUT", where, body | {"apply-to": call["apply-to"] or "all"})

    return run


def _policy_banner(kind: str) -> Callable[[Call], str]:
    def banner(call: Call) -> str:
        settings = f'for pattern "{call["pattern"]}" to "{call["definition"]}" with priority "{call["priority"] or 0}"'
        return f'Setting {kind} "{call["name"]}" {settings} for vhost "{call.vhost}" ...'

    return banner


def _clear(*parts: str) -> Callable[[Call], None]:
    def run(call: Call) -> None:
        answer = call.client.request("DELETE", path(*(part.format_map(call) for part in parts)))
        if answer.status == 404:
            raise CtlError(UNAVAILABLE, "Parameter does not exist")
        if not answer.is_good:
            raise call.refused(answer)

    return run


def _set_parameter(call: Call) -> None:
    component, name = call["component_name"], call["name"]
    value = call.json_argument("value")
    call.put("parameters", component, call.vhost, name, component=component, vhost=call.vhost, name=name, value=value)


def _list_parameters(call: Call) -> Result:
    if call.find("vhosts", call.vhost) is None:
        raise call.no_vhost(call.vhost)
    found = [each for each in call.get("parameters") if each.get("vhost") == call.vhost]
    return _rows(found, {**_same("component", "name"), "value": _json_of("value")}, call)


def _set_global_parameter(call: Call) -> None:
    call.put("global-parameters", call["name"], name=call["name"], value=call.json_argument("value"))


def _limits(call: Call, kind: str, name: str) -> dict[str, Any]:
    found = call.find(kind, name) or []
    return dict(found[0]["value"]) if found else {}


def _compact(limits: dict[str, Any]) -> str:
    return json.dumps(limits, separators=(",", ":"), sort_keys=True)


def _limit_definition(call: Call) -> dict[str, Any]:
    limits = call.json_argument("definition")
    if not isinstance(limits, dict):
        raise CtlError(UNAVAILABLE, "limits are a JSON object")
    return limits


def _set_vhost_limits(call: Call) -> None:
    """Replaces all limits of the vhost."""
    limits = _limit_definition(call)
    before = _limits(call, "vhost-limits", call.vhost)
    for name, value in limits.items():
        call.put("vhost-limits", call.vhost, name, value=value)
    for name in before.keys() - limits.keys():
        call.delete("vhost-limits", call.vhost, name)


def _clear_vhost_limits(call: Call) -> None:
    for name in _limits(call, "vhost-limits", call.vhost):
        call.delete("vhost-limits", call.vhost, name)


def _vhost_limits_banner(call: Call) -> str:
    which = "all vhosts" if call.has("global") else f'vhost "{call.vhost}"'
    return f"Listing limits for {which} ..."


def _list_vhost_limits(call: Call) -> Result:
    if call.has("global"):
        columns: Columns = {"vhost": "vhost", "limits": _json_of("value")}
        return _rows(call.get("vhost-limits"), columns, call)
    if call.find("vhosts", call.vhost) is None:
        raise call.no_vhost(call.vhost)
    limits = _limits(call, "vhost-limits", call.vhost)
    text = _compact(limits)
    return Sentence(text, {"node": call.node, "result": "ok", "value": text}) if limits else Rows([], [])


def _set_user_limits(call: Call) -> None:
    """Adds to the limits of the user."""
    limits = _limit_definition(call)
    call.user()
    for name, value in limits.items():
        call.put("user-limits", call["username"], name, value=value)


def _clear_user_limits_banner(call: Call) -> str:
    what = "all limits" if call["limit"] == "all" else f'"{call["limit"]}" limit'
    return f'Clearing {what} for user "{call["username"]}" ...'


def _clear_user_limits(call: Call) -> None:
    call.user()
    names = list(_limits(call, "user-limits", call["username"]))
    for name in names if call["limit"] == "all" else [call["limit"]]:
        if name in names:
            call.delete("user-limits", call["username"], name)


def _user_limits_banner(call: Call) -> str:
    who = "all users" if call.has("global") else f'user "{call["user"] or _FIRST_USER}"'
    return f"Listing limits for {who} ..."


def _list_user_limits(call: Call) -> Result:
    if call.has("global"):
        columns: Columns = {"user": "user", "limits": _json_of("value")}
        return _rows(call.get("user-limits"), columns, call)
    name = call["user"] or _FIRST_USER
    if call.find("users", name) is None:
        raise call.no_user(name)
    return Sentence(_compact(_limits(call, "user-limits", name)))


# -- queues, connections, definitions ---------------------------------------------------------------------------------


def _list_queues_banner(call: Call) -> str:
    return f"Timeout: {call.timeout_seconds or 'infinity'} seconds ...\nListing queues for vhost {call.vhost} ..."


def _purge_queue(call: Call) -> None:
    answer = call.client.request("DELETE", path("queues", call.vhost, call["queue"], "contents"))
    if answer.status == 404 and call.find("vhosts", call.vhost) is not None:
        raise CtlError(UNAVAILABLE, "not_found")
    if not answer.is_good:
        raise call.refused(answer)


def _delete_queue(call: Call) -> Result:
    found = call.find("queues", call.vhost, call["queue"])
    if found is None:
        raise CtlError(USAGE, "Queue not found")
    query = {name.replace("-", "_"): "true" for name in ("if-empty", "if-unused") if call.has(name)}
    answer = call.client.request("DELETE", path("queues", call.vhost, call["queue"], **query))
    if answer.status == 400 and query:
        raise CtlError(USAGE, "Queue is in use" if "in use" in answer.reason else "Queue is not empty")
    if not answer.is_good:
        raise call.refused(answer)
    ready = 0 if call.has("if-empty") else found.get("messages_ready", 0)
    return Sentence(f"Queue was successfully deleted with {ready} ready messages")


def _delete_queue_banner(call: Call) -> str:
    conditions = [f"queue is {name[3:]}" for name in ("if-unused", "if-empty") if call.has(name)]
    suffix = f" if {' and if '.join(conditions)}" if conditions else ""
    return f"Deleting queue '{call['queue']}' on vhost '{call.vhost}'{suffix} ..."


def _close(call: Call, name: str) -> None:
    call.send("DELETE", path("connections", name), headers={"X-Reason": call["explanation"]})


def _close_connection(call: Call) -> None:
    answer = call.client.request("GET", path("connections", call["connection"]))
    if answer.status == 404:
        raise CtlError(UNAVAILABLE, f"there is no connection {call['connection']}: see list_connections name")
    _close(call, call["connection"])


def _close_all(is_chosen: Callable[[Call, Mapping[str, Any]], bool]) -> Callable[[Call], Result]:
    def run(call: Call) -> Result:
        import time

        limit, delay_ms = (call[name] or "0" for name in ("limit", "per-connection-delay"))
        if not (limit.isdecimal() and delay_ms.isdecimal()):
            raise CtlError(65, "--limit and --per-connection-delay are integers")
        names = [each["name"] for each in call.get("connections") if is_chosen(call, each)]
        chosen = names[: int(limit)] if int(limit) else names
        for name in chosen:
            _close(call, name)
            time.sleep(int(delay_ms) / 1000)
        if call.verb.name != "close_all_connections":
            return None
        text = f"Closed {len(chosen)} connections"
        return Sentence(text, {"node": call.node, "result": "ok", "value": text})

    return run


def _of_vhost(call: Call, connection: Mapping[str, Any]) -> bool:
    return call.has("global") or connection.get("vhost") == call.vhost


def _of_user(call: Call, connection: Mapping[str, Any]) -> bool:
    return connection.get("user") == call["username"]


def _close_all_banner(call: Call) -> str:
    where = f"to node {call.node} (across all vhosts)" if call.has("global") else f"in vhost {call.vhost}"
    return f"Closing all connections {where}, reason: {call['explanation']}..."


def _is_json(call: Call) -> None:
    if call["format"] not in ("", "json"):
        raise bad_value("Format should be json")


def _has_directory(call: Call) -> None:
    _is_json(call)
    directory = os.path.dirname(call["file"]) or "."
    if call["file"] != "-" and not os.path.isdir(directory):
        raise bad_value(f"Directory {directory} does not exist")


def _has_file(call: Call) -> None:
    _is_json(call)
    if call["file"] not in ("", "-") and not os.path.isfile(call["file"]):
        raise bad_value(f"File {call['file']} does not exist")


def _export_definitions(call: Call) -> Result:
    definitions = call.get("definitions")
    if call["file"] == "-":
        return Document(definitions)
    try:  # it contains password hashes
        file = os.open(call["file"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as output:
            json.dump(definitions, output, ensure_ascii=False)
    except OSError as error:
        raise CtlError(UNAVAILABLE, f"cannot write {call['file']}: {error.strerror}") from error
    return None


def _import_definitions(call: Call) -> Result:
    try:
        if call["file"] in ("", "-"):
            text = sys.stdin.read()
        else:
            with open(call["file"], encoding="utf-8") as source:
                text = source.read()
        definitions = json.loads(text)
    except OSError as error:
        raise CtlError(UNAVAILABLE, f"cannot read {call['file']}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CtlError(65, f"{call['file'] or 'standard input'} is no JSON: {error}") from error
    call.send("POST", path("definitions"), definitions)
    return Sentence("Successfully imported definitions")


def _file_banner(call: Call) -> str:
    if call["file"] in ("", "-"):
        return "" if call.verb.name == "export_definitions" else "Importing definitions in JSON from standard input ..."
    verb, preposition = ("Exporting", "to") if call.verb.name == "export_definitions" else ("Importing", "from")
    return f'{verb} definitions in JSON {preposition} a file at "{call["file"]}" ...'


# -- the table --------------------------------------------------------------------------------------------------------


# fmt: off
VERBS: tuple[Verb, ...] = (
    Verb("add_user", "username password?", USERS, "Create a user. Without a password it is read from standard input.",
         _add_user, 'Adding user "{username}" ...', "pre-hashed-password", _has_name, works_stopped=True),
    Verb("delete_user", "username", USERS, "Delete a user and its permissions.",
         _delete_user, 'Deleting user "{username}" ...',
         works_stopped=True),
    Verb("change_password", "username password?", USERS, "Set another password.",
         _change_password, 'Changing password for user "{username}" ...', works_stopped=True),
    Verb("clear_password", "username", USERS, "Remove the password: the user cannot log in with one.",
         _clear_password, 'Clearing password for user "{username}" ...', works_stopped=True,
         no_user_code=UNAVAILABLE),
    Verb("authenticate_user", "username password?", USERS, "Check a password.",
         _authenticate_user, 'Authenticating user "{username}" ...', works_stopped=True),
    Verb("set_user_tags", "username tag*", USERS, "Set the tags: administrator, monitoring, policymaker, management.",
         _set_user_tags, _tags_banner, works_stopped=True),
    Verb("list_users", "", USERS, "List users and tags.", _listing({"user": "name", "tags": "tags"}, "users"),
         "Listing users ...", _LISTED, works_stopped=True),
    Verb("set_user_limits", "username definition", USERS, 'Limit a user: {"max-connections": 5, "max-channels": 9}.',
         _set_user_limits, 'Setting user limits to "{definition}" for user "{username}" ...', works_stopped=True,
         no_user_code=UNAVAILABLE),
    Verb("clear_user_limits", "username limit", USERS, "Remove a limit of a user, or `all`.",
         _clear_user_limits, _clear_user_limits_banner, works_stopped=True,
         no_user_code=UNAVAILABLE),
    Verb("list_user_limits", "", USERS, "List the limits of a user, or with --global of all users.",
         _list_user_limits, _user_limits_banner, f"{_LISTED} user= global", works_stopped=True,
         no_user_code=UNAVAILABLE),

    Verb("set_permissions", "username configure write read", ACCESS,
         "Set the patterns of names that a user may configure, write to and read from in a vhost.",
         _set_permissions, 'Setting permissions for user "{username}" in vhost "{vhost}" ...', is_vhost=True,
         works_stopped=True),
    Verb("clear_permissions", "username", ACCESS, "Revoke the permissions of a user in a vhost.",
         _clear_permissions, 'Clearing permissions for user "{username}" in vhost "{vhost}" ...', is_vhost=True,
         works_stopped=True),
    Verb("list_permissions", "", ACCESS, "List the permissions in a vhost.",
         _listing(_same("user", "configure", "write", "read"), "vhosts", "{vhost}", "permissions"),
         'Listing permissions for vhost "{vhost}" ...', _LISTED, is_vhost=True, works_stopped=True),
    Verb("list_user_permissions", "username", ACCESS, "List the permissions of a user.",
         _listing(_same("vhost", "configure", "write", "read"), "users", "{username}", "permissions"),
         'Listing permissions for user "{username}" ...', _LISTED, works_stopped=True, no_user_code=UNAVAILABLE),
    Verb("set_topic_permissions", "username exchange write read", ACCESS,
         "Set the patterns of routing keys that a user may publish and bind with, for a topic exchange.",
         _set_topic_permissions,
         'Setting topic permissions on "{exchange}" for user "{username}" in vhost "{vhost}" ...', is_vhost=True,
         works_stopped=True),
    Verb("clear_topic_permissions", "username exchange?", ACCESS,
         "Revoke the topic permissions of a user, for an exchange or for all.", _clear_topic_permissions,
         _clear_topic_banner, is_vhost=True,
         works_stopped=True),
    Verb("list_topic_permissions", "", ACCESS, "List the topic permissions in a vhost.",
         _listing(_same("user", "exchange", "write", "read"), "vhosts", "{vhost}", "topic-permissions"),
         'Listing topic permissions for vhost "{vhost}" ...', _LISTED, is_vhost=True, works_stopped=True),
    Verb("list_user_topic_permissions", "username", ACCESS, "List the topic permissions of a user.",
         _listing(_same("vhost", "exchange", "write", "read"), "users", "{username}", "topic-permissions"),
         'Listing topic permissions for user "{username}" ...', _LISTED, works_stopped=True,
         no_user_code=UNAVAILABLE),

    Verb("add_vhost", "virtual_host", VHOSTS, "Create a vhost.", _add_vhost, 'Adding vhost "{virtual_host}" ...',
         "description= tags= default-queue-type=", works_stopped=True),
    Verb("delete_vhost", "virtual_host", VHOSTS, "Delete a vhost with all its queues and messages.",
         _delete_vhost, 'Deleting vhost "{virtual_host}" ...', works_stopped=True),
    Verb("list_vhosts", "column*", VHOSTS, "List vhosts.", _selection(VHOST_COLUMNS, "name", "vhosts"),
         "Listing vhosts ...", _LISTED, _known(VHOST_COLUMNS), works_stopped=True),
    Verb("set_vhost_tags", "virtual_host tag*", VHOSTS, "Set the tags of a vhost.", _set_vhost_tags,
         _tags_banner, works_stopped=True),
    Verb("set_vhost_limits", "definition", VHOSTS, 'Limit a vhost: {"max-connections": 50, "max-queues": 100}.',
         _set_vhost_limits, 'Setting vhost limits to "{definition}" for vhost "{vhost}" ...', is_vhost=True,
         works_stopped=True),
    Verb("clear_vhost_limits", "", VHOSTS, "Remove the limits of a vhost.",
         _clear_vhost_limits, 'Clearing vhost "{vhost}" limits ...', is_vhost=True, works_stopped=True),
    Verb("list_vhost_limits", "", VHOSTS, "List the limits of a vhost, or with --global of all vhosts.",
         _list_vhost_limits, _vhost_limits_banner, f"{_LISTED} global", is_vhost=True,
         works_stopped=True),
    Verb("trace_on", "", VHOSTS, "Copy all messages of a vhost to the exchange amq.rabbitmq.trace.", _trace(True),
         'Starting tracing for vhost "{vhost}" ...', is_vhost=True),
    Verb("trace_off", "", VHOSTS, "Stop tracing.", _trace(False), 'Stopping tracing for vhost "{vhost}" ...',
         is_vhost=True),

    Verb("set_policy", "name pattern definition", POLICIES, 'Set a policy: set_policy ttl "^t" \'{"message-ttl":9}\'.',
         _set_policy("policies"), _policy_banner("policy"), "priority= apply-to=", is_vhost=True,
         works_stopped=True),
    Verb("clear_policy", "name", POLICIES, "Remove a policy.", _clear("policies", "{vhost}", "{name}"),
         'Clearing policy "{name}" on vhost "{vhost}" ...', is_vhost=True, works_stopped=True),
    Verb("list_policies", "", POLICIES, "List the policies of a vhost.",
         _listing(POLICY_COLUMNS, "policies", "{vhost}"), 'Listing policies for vhost "{vhost}" ...', _LISTED,
         is_vhost=True, works_stopped=True),
    Verb("set_operator_policy", "name pattern definition", POLICIES, "Set a policy that limits what users may set.",
         _set_policy("operator-policies"), _policy_banner("operator policy override"), "priority= apply-to=",
         is_vhost=True, works_stopped=True),
    Verb("clear_operator_policy", "name", POLICIES, "Remove an operator policy.",
         _clear("operator-policies", "{vhost}", "{name}"),
         'Clearing operator policy "{name}" on vhost "{vhost}" ...', is_vhost=True, works_stopped=True),
    Verb("list_operator_policies", "", POLICIES, "List the operator policies of a vhost.",
         _listing(POLICY_COLUMNS, "operator-policies", "{vhost}"),
         'Listing operator policy overrides for vhost "{vhost}" ...', _LISTED, is_vhost=True, works_stopped=True),
    Verb("set_parameter", "component_name name value", POLICIES, "Set a parameter of a component.", _set_parameter,
         'Setting runtime parameter "{name}" for component "{component_name}" to "{value}" in vhost "{vhost}" ...',
         is_vhost=True, works_stopped=True),
    Verb("clear_parameter", "component_name name", POLICIES, "Remove a parameter.",
         _clear("parameters", "{component_name}", "{vhost}", "{name}"),
         'Clearing runtime parameter "{name}" for component "{component_name}" on vhost "{vhost}" ...', is_vhost=True,
         works_stopped=True),
    Verb("list_parameters", "", POLICIES, "List the parameters of a vhost.", _list_parameters,
         'Listing runtime parameters for vhost "{vhost}" ...', _LISTED, is_vhost=True, works_stopped=True),
    Verb("set_global_parameter", "name value", POLICIES, "Set a parameter of all vhosts.", _set_global_parameter,
         'Setting global runtime parameter "{name}" to "{value}" ...', works_stopped=True),
    Verb("clear_global_parameter", "name", POLICIES, "Remove a global parameter.",
         _clear("global-parameters", "{name}"), 'Clearing global runtime parameter "{name}" ...', works_stopped=True),
    Verb("list_global_parameters", "", POLICIES, "List the global parameters.",
         _listing({"name": "name", "value": _json_of("value")}, "global-parameters"),
         "Listing global runtime parameters ...", _LISTED, works_stopped=True),

    Verb("list_queues", "column*", LISTS, "List the queues of a vhost.",
         _selection(QUEUE_COLUMNS, "name messages", "queues", "{vhost}"),
         _list_queues_banner,
         f"online offline local {_LISTED}", _known(QUEUE_COLUMNS), is_vhost=True),
    Verb("list_exchanges", "column*", LISTS, "List the exchanges of a vhost.",
         _selection(EXCHANGE_COLUMNS, "name type", "exchanges", "{vhost}"),
         "Listing exchanges for vhost {vhost} ...", _LISTED, _known(EXCHANGE_COLUMNS), is_vhost=True),
    Verb("list_bindings", "column*", LISTS, "List the bindings of a vhost.",
         _selection(BINDING_COLUMNS, " ".join(BINDING_COLUMNS), "bindings", "{vhost}"),
         "Listing bindings for vhost {vhost}...", _LISTED, _known(BINDING_COLUMNS), is_vhost=True),
    Verb("list_connections", "column*", LISTS, "List connections.",
         _selection(CONNECTION_COLUMNS, "user peer_host peer_port state", "connections"),
         "Listing connections ...", _LISTED, _known(CONNECTION_COLUMNS)),
    Verb("list_channels", "column*", LISTS, "List channels.",
         _selection(CHANNEL_COLUMNS, "pid user consumer_count messages_unacknowledged", "channels"),
         "Listing channels ...", _LISTED, _known(CHANNEL_COLUMNS)),
    Verb("list_consumers", "column*", LISTS, "List the consumers of a vhost.",
         _selection(CONSUMER_COLUMNS, _CONSUMER_DEFAULTS, "consumers", "{vhost}"),
         "Listing consumers in vhost {vhost} ...", _LISTED, _known(CONSUMER_COLUMNS), is_vhost=True),

    Verb("purge_queue", "queue", QUEUES, "Remove all ready messages of a queue.",
         _purge_queue, "Purging queue '{queue}' in vhost '{vhost}' ...", is_vhost=True),
    Verb("delete_queue", "queue", QUEUES, "Delete a queue.",
         _delete_queue, _delete_queue_banner, "if-empty if-unused", is_vhost=True),

    Verb("close_connection", "connection explanation", CONNECTIONS,
         "Close a connection, by its name or the pid of list_connections.",
         _close_connection, "Closing connection {connection}, reason: {explanation}..."),
    Verb("close_all_connections", "explanation", CONNECTIONS, "Close the connections of a vhost, or all (--global).",
         _close_all(_of_vhost), _close_all_banner, "global per-connection-delay= limit=", is_vhost=True),
    Verb("close_all_user_connections", "username explanation", CONNECTIONS, "Close the connections of a user.",
         _close_all(_of_user), "Closing connections of user {username}, reason: {explanation}...",
         "per-connection-delay= limit="),

    Verb("export_definitions", "file", DEFINITIONS, "Write users, vhosts, queues … as JSON to a file, or to - .",
         _export_definitions, _file_banner, "format=", _has_directory, works_stopped=True),
    Verb("import_definitions", "file?", DEFINITIONS, "Read definitions from a file, or from standard input.",
         _import_definitions, _file_banner, "format= skip-if-unchanged", _has_file, works_stopped=True),
    *node.VERBS,
)
# fmt: on

BY_NAME: Mapping[str, Verb] = {verb.name: verb for verb in VERBS}
