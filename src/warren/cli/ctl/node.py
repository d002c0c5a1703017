"""Verbs about the broker itself: health checks, status, start and stop, limits of memory and disk, its log, plugins.

`ping` needs an answer, `check_running` a broker that accepts clients. `await_startup` and `wait` poll until then. What
RabbitMQ's API does not have is below /api/warren (management/control).

Warren has no plugins: those of RabbitMQ whose function it includes are shown as enabled, and enabling one of them is
accepted; any other is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from warren.cli.ctl.call import Call, Verb, WrongUsage, bad_value, path, timed_out
from warren.cli.ctl.client import SOFTWARE, UNAVAILABLE, USAGE, CtlError, NotRunning, UrlClient
from warren.cli.ctl.output import Result, Rows, Section, Sections, Sentence

CHECKS, NODE, SETTINGS, PLUGINS = "Health checks", "Broker", "Settings of the running broker", "Plugins"
INCLUDED_PLUGINS = ("rabbitmq_management", "rabbitmq_management_agent", "rabbitmq_prometheus", "rabbitmq_web_dispatch")
STARTUP_SECONDS = 300.0
_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 5.0
_GIGABYTE = 1e9
_UNITS = {"bytes": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "t": 1e12, "tb": 1e12}
_PURPOSES = {
    "amqp": "AMQP 0-9-1",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "http": "HTTP API",
    "https": "HTTP API over TLS",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "clustering": "inter-node and CLI tool communication",
}

# -- health checks ----------------------------------------------------------------------------------------------------


def _ping(call: Call) -> Result:
    try:
        answer = call.client.request("GET", path("whoami"))
    except NotRunning as error:
        spent_ms = int((call.timeout_seconds or 0) * 1000)
        text = f"Failed to connect and authenticate to {call.local_node} in {spent_ms} ms\n{error.text}"
        raise CtlError(UNAVAILABLE, text) from error
    if not answer.is_good:
        raise call.refused(answer)
    return Sentence("Ping succeeded")


def _is_in_service(call: Call) -> bool:
    """Whether clients are accepted. RabbitMQ's API runs only while they are."""
    answer = call.client.request("GET", path("health", "checks", "is-in-service"))
    return answer.is_good or answer.status == 404


def _check_running(call: Call) -> Result:
    if _is_in_service(call):
        return Sentence(f"The broker on node {call.node} is fully started and running")
    raise CtlError(UNAVAILABLE, f"The broker on node {call.node} does not accept clients")


def _is_running(call: Call) -> Result:
    is_running = _is_in_service(call)
    text = "is fully started and running" if is_running else "does not accept clients"
    return Sentence(f"The broker on node {call.node} {text}", {"result": is_running, "node": call.node})


def _alarms(call: Call) -> list[str]:
    """Alarms in effect, as sentences."""
    answer = call.client.request("GET", path("health", "checks", "alarms"))
    if answer.is_good:
        return []
    if answer.status != 503:
        raise call.refused(answer)
    return [_alarm_text(alarm, call) for alarm in answer.content.get("alarms", [])]


def _alarm_text(alarm: Mapping[str, Any], call: Call) -> str:
    resource, place = str(alarm.get("resource", "")), f"on node {alarm.get('node', call.node)}"
    names = {"memory": f"Memory alarm {place}", "disk": f"Free disk space alarm {place}"}
    details = ": ".join(str(alarm[name]) for name in ("task", "reason") if name in alarm)
    return names.get(resource, f"{resource.capitalize()} alarm {place}") + (f": {details}" if details else "")


def _check_alarms(kind: str) -> Callable[[Call], Result]:
    def run(call: Call) -> Result:
        alarms = _alarms(call)
        if alarms:
            facts = {"local": alarms, "message": f"Node {call.node} reported alarms", "result": "error"}
            raise CtlError(UNAVAILABLE, "\n".join(alarms), facts=facts)
        return Sentence(f"Node {call.node} reported no {kind}", {"result": "ok"})

    return run


def _list_alarms(call: Call) -> Result:
    alarms = _alarms(call)
    text = "\n".join(alarms) or f"Node {call.node} reported no alarms, local or clusterwide"
    return Sentence(text, {"result": "ok", "local": alarms, "global": alarms})


def _check_virtual_hosts(call: Call) -> Result:
    answer = call.client.request("GET", path("health", "checks", "virtual-hosts"))
    if answer.is_good:
        return Sentence(f"Node {call.node} reported all vhosts as running", {"result": "ok"})
    if answer.status != 503:
        raise call.refused(answer)
    names = [str(name) for name in answer.content.get("virtual-hosts", [])]
    text = f"Some virtual hosts on node {call.node} are down:\n" + "\n".join(names)
    raise CtlError(UNAVAILABLE, text, facts={"result": "error", "down_vhosts": names})


def listeners(call: Call) -> list[dict[str, Any]]:
    return [_listener(each) for each in call.get("overview", columns="listeners")["listeners"]]


def _listener(listener: Mapping[str, Any]) -> dict[str, Any]:
    host, protocol = listener["ip_address"], listener["protocol"]
    shown = {"interface": f"[{host}]" if ":" in host else host, "node": listener["node"], "port": listener["port"]}
    return shown | {"protocol": protocol, "purpose": _PURPOSES.get(protocol, protocol)}


def _listener_line(listener: Mapping[str, Any]) -> str:
    shown = f"Interface: {listener['interface']}, port: {listener['port']}, protocol: {listener['protocol']}"
    return f"{shown}, purpose: {listener['purpose']}"


def _listeners(call: Call) -> Result:
    found = listeners(call)
    return Sentence("\n".join(map(_listener_line, found)), {"listeners": found, "node": call.node, "result": "ok"})


def _check_port_connectivity(call: Call) -> Result:
    found = listeners(call)
    host = call.client.host if isinstance(call.client, UrlClient) else None
    failed = [each["port"] for each in found if not _is_reachable(host or each["interface"].strip("[]"), each["port"])]
    facts = {"listeners": found, "node": call.node, "result": "error" if failed else "ok"}
    if failed:
        text = f"Connection to ports {_listed(failed)} on node {call.node} failed"
        raise CtlError(UNAVAILABLE, text, facts=facts)
    ports = _listed(sorted(each["port"] for each in found))
    return Sentence(f"Successfully connected to ports {ports} on node {call.node}.", facts)


def _is_reachable(host: str, port: int) -> bool:
    import socket

    address = {"0.0.0.0": "127.0.0.1", "::": "localhost"}.get(host, host)
    try:
        with socket.create_connection((address, port), _CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _is_port(call: Call) -> None:
    if not (call["port"].isascii() and call["port"].isdecimal()):
        raise bad_value("Argument must be a positive integer")


def _check_port_listener(call: Call) -> Result:
    found, port = listeners(call), int(call["port"])
    ports = [each["port"] for each in found]
    if port in ports:
        return Sentence(f"A listener for port {port} is running on node {call.node}.", {"result": "ok", "port": port})
    text = f"No listener for port {port} is active on node {call.node}. Found listeners that use the following ports: "
    facts = {"listeners": found, "missing": call["port"], "ports": ports, "result": "error"}
    raise CtlError(UNAVAILABLE, text + _listed(sorted(ports)), has_label=False, facts=facts)


def _check_protocol_listener(call: Call) -> Result:
    found, name = listeners(call), call["protocol"]
    protocols = [each["protocol"] for each in found]
    answer = call.client.request("GET", path("health", "checks", "protocol-listener", name))
    if name in protocols or answer.is_good:
        text = f"A listener for protocol {name} is running on node {call.node}."
        return Sentence(text, {"result": "ok", "protocol": name})
    text = f"No listener for protocol {name} is active on node {call.node}. "
    facts = {"listeners": found, "missing": name, "protocols": protocols, "result": "error"}
    listed = _listed(sorted(set(protocols)))
    raise CtlError(UNAVAILABLE, f"{text}Found listeners for the following protocols: {listed}", facts=facts)


# -- status -----------------------------------------------------------------------------------------------------------


def _unit(call: Call) -> tuple[str, float]:
    name = call["unit"] or "gb"
    if name.lower() not in _UNITS:
        raise bad_value(f"unit {name} is none of {_listed(_UNITS)}")
    return name, _UNITS[name.lower()]


def _is_unit(call: Call) -> None:
    _unit(call)


def _memory(call: Call, node: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by use, the largest first. A broker that does not divide its memory has one entry."""
    found = call.find("nodes", node["name"], "memory")
    parts = found.get("memory") if isinstance(found, dict) else None
    if not isinstance(parts, dict):
        parts = {"process": node.get("mem_used", 0)}
    sizes = {name: value for name, value in parts.items() if isinstance(value, int)}
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))


def _memory_lines(memory: Mapping[str, int], used_bytes: int, unit: str, scale: float, space: str = "") -> list[str]:
    total = used_bytes or sum(memory.values()) or 1
    return [
        f"{name}: {round(size / scale, 4)} {unit} ({round(100 * size / total, 2)}{space}%)"
        for name, size in memory.items()
    ]


def _memory_breakdown(call: Call) -> Result:
    node = call.get("nodes")[0]
    memory, total = _memory(call, node), node.get("mem_used", 0) or 1
    facts = {name: {"bytes": size, "percentage": round(100 * size / total, 2)} for name, size in memory.items()}
    return Sentence("\n".join(_memory_lines(memory, total, *_unit(call))), facts)


def status_facts(call: Call) -> dict[str, Any]:
    """The status under the names of `rabbitmqctl status --formatter json`. RabbitMQ gathers statistics for some seconds
    before it shows them: until then a number is 0."""
    overview, node = call.get("overview"), call.get("nodes")[0]
    totals = overview.get("object_totals", {})
    return {
        "active_plugins": node.get("enabled_plugins", []),
        "alarms": _alarms(call),
        "config_files": node.get("config_files", []),
        "data_directory": node.get("db_dir", ""),
        "disk_free": node.get("disk_free", 0),
        "disk_free_limit": node.get("disk_free_limit", 0),
        "file_descriptors": {
            "sockets_limit": node.get("sockets_total", 0),
            "sockets_used": node.get("sockets_used", 0),
            "total_limit": node.get("fd_total", 0),
            "total_used": node.get("fd_used", 0),
        },
        "is_under_maintenance": False,
        "listeners": [_listener(each) for each in overview["listeners"]],
        "log_files": node.get("log_files", []),
        "memory": _memory(call, node) | {"total": {"rss": node.get("mem_used", 0)}, "strategy": "rss"},
        "node": node["name"],
        "os": os.uname().sysname,
        "pid": int(node.get("os_pid", 0)),
        "problems": overview.get("problems", []),
        "product_name": overview.get("product_name", ""),
        "product_version": overview.get("management_version", ""),
        "rabbitmq_version": overview["rabbitmq_version"],
        "running": node.get("running", True),
        "totals": {
            "connection_count": totals.get("connections", 0),
            "queue_count": totals.get("queues", 0),
            "virtual_host_count": len(call.get("vhosts", columns="name")),
        },
        "uptime": node.get("uptime", 0) // 1000,
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_limit": node.get("mem_limit", 0),
    }


def _status(call: Call) -> Result:
    facts = status_facts(call)
    unit, scale = _unit(call)
    files, totals, memory = facts["file_descriptors"], facts["totals"], facts["memory"]

    def shown(size: int) -> str:
        return f"{round(size / scale, 4)} {unit}"

    runtime = {"OS PID": facts["pid"], "OS": facts["os"], "Uptime (seconds)": facts["uptime"]}
    runtime |= {"Is under maintenance?": "false", "RabbitMQ version": facts["rabbitmq_version"]}
    runtime |= {"Product": f"{facts['product_name']} {facts['product_version']}".strip(), "Node name": facts["node"]}
    used, limit = memory["total"]["rss"], facts["vm_memory_high_watermark_limit"]
    parts = {name: size for name, size in memory.items() if isinstance(size, int)}
    sections = [
        Section("Runtime", [f"{name}: {value}" for name, value in runtime.items()]),
        Section("Plugins", ["Enabled plugins:", "", *_starred(facts["active_plugins"])]),
        Section("Data directory", [f"Node data directory: {facts['data_directory']}"]),
        Section("Config files", _starred(facts["config_files"])),
        Section("Log file(s)", _starred(facts["log_files"])),
        Section("Alarms", facts["alarms"] or ["(none)"]),
        Section(
            "Memory",
            [
                f"Total memory used: {shown(used)}",
                "Calculation strategy: rss",
                f"Memory high watermark setting: computed to: {shown(limit)}",
                "",
                *_memory_lines(parts, used, unit, scale, " "),
            ],
        ),
        Section(
            "File Descriptors",
            [
                f"Total: {files['total_used']}, limit: {files['total_limit']}",
                f"Sockets: {files['sockets_used']}, limit: {files['sockets_limit']}",
            ],
        ),
        Section(
            "Free Disk Space",
            [
                f"Low free disk space watermark: {shown(facts['disk_free_limit'])}",
                f"Free disk space: {shown(facts['disk_free'])}",
            ],
        ),
        Section("Totals", [f"{name.replace('_', ' ').capitalize()}: {count}" for name, count in totals.items()]),
        Section("Listeners", list(map(_listener_line, facts["listeners"]))),
    ]
    return Sections(sections, facts)


def _starred(values: Sequence[str]) -> list[str]:
    return [f" * {value}" for value in values] or ["(none)"]


def _feature_flags(call: Call) -> list[dict[str, Any]]:
    return list(call.find("feature-flags") or [])


def _list_feature_flags(call: Call) -> Result:
    return Rows(["name", "state"], [[each["name"], each["state"]] for each in _feature_flags(call)])


def _cluster_status(call: Call) -> Result:
    node, name = call.node, call.get("cluster-name")["name"]
    version = call.get("overview", columns="rabbitmq_version")["rabbitmq_version"]
    found, alarms, flags = listeners(call), _alarms(call), _feature_flags(call)
    sections = [
        Section("Basics", [f"Cluster name: {name}"]),
        Section("Disk Nodes", [node]),
        Section("Running Nodes", [node]),
        Section("Versions", [f"{node}: RabbitMQ {version}"]),
        Section("Maintenance status", [f"Node: {node}, status: not under maintenance"]),
        Section("Alarms", alarms or ["(none)"]),
        Section("Network Partitions", ["(none)"]),
        Section(
            "Listeners", [f"Node: {node}, " + _listener_line(each).replace("Interface", "interface") for each in found]
        ),
        Section("Feature flags", [f"Flag: {each['name']}, state: {each['state']}" for each in flags]),
    ]
    facts = {"alarms": alarms, "cluster_name": name, "disk_nodes": [node], "feature_flags": flags}
    facts |= {"listeners": {node: found}, "maintenance_status": {node: "not under maintenance"}, "partitions": {}}
    versions = {node: {"rabbitmq_name": "RabbitMQ", "rabbitmq_version": version}}
    return Sections(sections, facts | {"ram_nodes": [], "running_nodes": [node], "versions": versions})


def _version(call: Call) -> Result:
    from warren import __version__

    return Sentence(__version__, {"node": call.local_node, "result": "ok", "value": {"version": __version__}})


def _server_version(call: Call) -> Result:
    return Sentence(str(call.get("overview", columns="rabbitmq_version")["rabbitmq_version"]))


def _environment(call: Call) -> Result:
    found = call.get("warren", "environment")
    sections = [
        Section(title, [f"{name} = {value}" for name, value in values.items()]) for title, values in found.items()
    ]
    return Sections(sections, found)


_REPORTED = (
    "status",
    "cluster_status",
    "environment",
    "list_users",
    "list_vhosts",
    "list_connections",
    "list_channels",
)
_REPORTED_OF_VHOST = ("list_queues", "list_exchanges", "list_bindings", "list_consumers", "list_permissions")


def _report(call: Call) -> Result:
    """The output of other verbs. One that fails says why; the others are run."""
    lines: list[tuple[str, list[str]]] = [(name, []) for name in _REPORTED]
    for vhost in call.get("vhosts", columns="name"):
        lines += [(name, ["--vhost", vhost["name"]]) for name in (*_REPORTED_OF_VHOST, "list_policies")]
    texts = [call.run_verb(name, options) for name, options in lines]
    facts = {" ".join([name, *options]): text for (name, options), text in zip(lines, texts, strict=True)}
    return Sentence("\n".join(texts), facts)


# -- start and stop ---------------------------------------------------------------------------------------------------


def _await_startup(call: Call) -> Result:
    _poll_until_running(call, STARTUP_SECONDS if not call.has("timeout") else call.timeout_seconds)
    return None


def _poll_until_running(call: Call, seconds: float | None, pid: int = 0) -> None:
    end = time.monotonic() + seconds if seconds is not None else None
    while True:
        try:
            if _is_in_service(call):
                return
        except (NotRunning, TimeoutError):
            pass
        if pid and not _is_alive(pid):
            raise CtlError(UNAVAILABLE, f"process {pid} is not running")
        if end is not None and time.monotonic() > end:
            raise timed_out(call, seconds)
        time.sleep(_POLL_SECONDS)


def _wait(call: Call) -> Result:
    """For a pid file, then for the broker of that process."""
    seconds = STARTUP_SECONDS if not call.has("timeout") else call.timeout_seconds
    end = time.monotonic() + seconds if seconds is not None else None
    pid = int(call["pid"]) if call["pid"] else 0
    while not pid:
        pid = _pid_in(call["pidfile"])
        if not pid and end is not None and time.monotonic() > end:
            raise timed_out(call, seconds)
        if not pid:
            time.sleep(_POLL_SECONDS)
    _poll_until_running(call, None if end is None else max(end - time.monotonic(), 0.0), pid)
    return Sentence(f"pid is {pid}\nThe broker is running on node '{call.node}'", {"pid": pid, "result": "ok"})


def _has_pid(call: Call) -> None:
    if bool(call["pidfile"]) == bool(call["pid"]) or (call["pid"] and not call["pid"].isdecimal()):
        raise WrongUsage("name a pid file, or a process id with --pid", USAGE)


def _pid_in(file: str) -> int:
    """0 if there is no such file, or nothing in it yet."""
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            text = source.read(32).strip()
    except OSError:
        return 0
    return int(text) if text.isascii() and text.isdecimal() else 0


def _is_alive(pid: int) -> bool:
    """A process that has ended, and whose parent has not waited for it yet, is not alive."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as source:
            return source.read().rpartition(") ")[2][:1] not in ("Z", "X")
    except OSError:
        return False


def _stop(call: Call) -> Result:
    """Returns when the process has ended, on this machine."""
    try:
        pid = int(call.get("nodes", columns="os_pid")[0]["os_pid"])
        call.send("POST", path("warren", "stop"), {})
    except NotRunning:
        if call.has("idempotent"):
            return Sentence(f"Node {call.local_node} is not running")
        raise
    if call.is_local:
        seconds = STARTUP_SECONDS if not call.has("timeout") else call.timeout_seconds
        end = time.monotonic() + seconds if seconds is not None else None
        while _is_alive(pid):
            if end is not None and time.monotonic() > end:
                raise timed_out(call, seconds)
            time.sleep(_POLL_SECONDS)
    return None


def _post(*parts: str) -> Callable[[Call], None]:
    def run(call: Call) -> None:
        call.send("POST", path("warren", *parts), {})

    return run


# -- settings of the running broker -----------------------------------------------------------------------------------


def _set_memory(call: Call) -> None:
    call.put("warren", "memory-limit", **_limit_body(call, "relative", "absolute"))


def _set_disk(call: Call) -> None:
    call.put("warren", "disk-limit", **_limit_body(call, "mem_relative", "absolute"))


def _limit_body(call: Call, share: str, size: str) -> dict[str, Any]:
    kind, value = _limit_words(call)
    return {share: float(value)} if kind == share else {size: value}


def _limit_words(call: Call) -> tuple[str, str]:
    """`0.4`, `absolute 2GB`, `mem_relative 0.5`, `50MB`: which of them, and its value."""
    words = [call["limit"], *call.many]
    is_memory = call.verb.name == "set_vm_memory_high_watermark"
    if len(words) == 1:
        return ("relative" if is_memory else "absolute"), words[0]
    if len(words) > 2 or words[0] != ("absolute" if is_memory else "mem_relative"):
        raise WrongUsage("too many arguments.", USAGE)
    return words[0], words[1]


def _is_limit(call: Call) -> None:
    kind, value = _limit_words(call)
    number, letters = value.rstrip("kKmMgGtTiIbB "), value.lstrip("0123456789. ")
    try:
        amount = float(number)
    except ValueError:
        raise bad_value() from None
    if kind in ("relative", "mem_relative"):
        if letters:
            raise bad_value()
        if kind == "relative" and not 0.0 <= amount <= 1.0:
            raise bad_value("The threshold should be a fraction between 0.0 and 1.0")
    if amount < 0:
        raise bad_value()


def _memory_banner(call: Call) -> str:
    kind, value = _limit_words(call)
    return f"Setting memory threshold on {call.node} to {value}{' bytes' if kind == 'absolute' else ''} ..."


def _disk_banner(call: Call) -> str:
    kind, value = _limit_words(call)
    unit = "bytes" if kind == "absolute" else "times the total RAM"
    return f"Setting disk free limit on {call.node} to {value} {unit} ..."


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none")


def _level(call: Call) -> tuple[str, str]:
    """Category, empty for all, and level."""
    words = [call["level"], *call.many]
    return ("", words[0]) if len(words) == 1 else (words[0], words[1])


def _is_level(call: Call) -> None:
    if len(call.many) > 1:
        raise WrongUsage("too many arguments.", USAGE)
    level = _level(call)[1]
    if level not in LOG_LEVELS:
        raise CtlError(UNAVAILABLE, f"level {level} is not supported. Try one of {_listed(LOG_LEVELS)}")


def _set_log_level(call: Call) -> None:
    category, level = _level(call)
    call.put("warren", "log-level", category=category, level=level)


def _log_level_banner(call: Call) -> str:
    category, level = _level(call)
    return f'Setting log level{f" for category {category}" if category else ""} to "{level}" ...'


def is_login(call: Call, name: str, secret: str) -> bool:
    """Whether user and password are right. At the socket there is no login: the broker checks it on request."""
    if isinstance(call.client, UrlClient):
        answer = call.client.request_as((name, secret), "GET", path("whoami"))
        is_known = answer.reason.startswith("Not ")  # logged in, without a tag for the management
        return answer.is_good or is_known
    answer = call.client.request("POST", path("warren", "authenticate"), {"username": name, "password": secret})
    if answer.status not in (200, 401):
        raise call.refused(answer)
    return answer.is_good


def _hash_password(call: Call) -> Result:
    from base64 import b64encode
    from hashlib import sha256

    secret = call["password"] if "password" in call.arguments else call.read_secret()
    if not secret:
        raise CtlError(65, "an empty password has no hash")
    salt = os.urandom(4)
    return Sentence(b64encode(salt + sha256(salt + secret.encode()).digest()).decode())


# -- plugins ----------------------------------------------------------------------------------------------------------


def _plugins(call: Call) -> Result:
    actions = {"list": _list_plugins, "enable": _enable_plugins, "disable": _disable_plugins}
    actions |= {"is_enabled": _are_enabled, "set": _enable_plugins}
    action = actions.get(call["action"])
    if action is None:
        raise WrongUsage(f"plugins has {_listed(actions)}, not {call['action']}", USAGE)
    return action(call)


def _list_plugins(call: Call) -> Result:
    wanted = call.many[0] if call.many else ""
    names = [name for name in INCLUDED_PLUGINS if wanted in name]
    if call.has("minimal"):
        return Rows(["name"], [[name] for name in names], has_header=False)
    from warren import __version__

    width = max(map(len, names), default=0)
    lines = [f"[E*] {name:<{width}} {__version__}" for name in names]
    plugins = [{"name": name, "version": __version__, "enabled": "enabled", "running": True} for name in names]
    return Sentence("\n".join(lines), {"format": "normal", "plugins": plugins})


def _enable_plugins(call: Call) -> Result:
    _require_plugins(call)
    return Sentence("The following plugins are part of Warren:\n" + "\n".join(f"  {name}" for name in call.many))


def _are_enabled(call: Call) -> Result:
    _require_plugins(call)
    return Sentence(f"Plugins {_listed(call.many)} are enabled")


def _disable_plugins(call: Call) -> Result:
    _require_plugins(call)
    raise CtlError(UNAVAILABLE, f"{_listed(call.many)}: part of Warren, cannot be disabled")


def _require_plugins(call: Call) -> None:
    unknown = [name for name in call.many if name not in INCLUDED_PLUGINS]
    if unknown:
        text = (
            f"plugins not found: {_listed(unknown)}. Warren includes {_listed(INCLUDED_PLUGINS)}, and loads no others"
        )
        raise CtlError(SOFTWARE, text)


# fmt: off
VERBS: tuple[Verb, ...] = (
    Verb("ping", "", CHECKS, "Check that the broker answers.", _ping,
         lambda call: f"Will ping {call.node}. Timeout: {int((call.timeout_seconds or 0) * 1000)} ms."),
    Verb("check_running", "", CHECKS, "Fail unless the broker accepts clients.", _check_running,
         "Checking if the broker is running on node {node} ..."),
    Verb("is_running", "", CHECKS, "Print whether the broker accepts clients.", _is_running,
         "Asking node {node} for its status ..."),
    Verb("check_local_alarms", "", CHECKS, "Fail if there are alarms.", _check_alarms("local alarms"),
         "Asking node {node} to report any local resource alarms ..."),
    Verb("check_alarms", "", CHECKS, "Fail if there are alarms.", _check_alarms("alarms, local or clusterwide"),
         "Asking node {node} to report any local resource alarms ..."),
    Verb("alarms", "", CHECKS, "List the alarms in effect.", _list_alarms,
         "Asking node {node} to report any known resource alarms ..."),
    Verb("check_port_connectivity", "", CHECKS, "Fail unless every listener accepts a TCP connection.",
         _check_port_connectivity, "Testing TCP connections to all active listeners on node {node} ..."),
    Verb("check_port_listener", "port", CHECKS, "Fail unless there is a listener on a port.", _check_port_listener,
         "Asking node {node} if there's an active listener on port {port} ...", validate=_is_port),
    Verb("check_protocol_listener", "protocol", CHECKS, "Fail unless there is a listener for a protocol.",
         _check_protocol_listener, "Asking node {node} if there's an active listener for protocol {protocol} ..."),
    Verb("check_virtual_hosts", "", CHECKS, "Fail unless every vhost is served.", _check_virtual_hosts,
         "Checking if all vhosts are running on node {node} ..."),
    Verb("listeners", "", CHECKS, "List the listeners.", _listeners,
         "Asking node {node} to report its protocol listeners ..."),

    Verb("status", "", NODE, "Show version, memory, disk, alarms, totals and listeners.", _status,
         "Status of node {node} ...", "unit=", _is_unit),
    Verb("cluster_status", "", NODE, "Show the one node in the form of a cluster.", _cluster_status,
         "Cluster status of node {node} ..."),
    Verb("memory_breakdown", "", NODE, "Show the use of memory.", _memory_breakdown,
         "Reporting memory breakdown on node {node}...", "unit=", _is_unit),
    Verb("environment", "", NODE, "Show the configuration in effect.", _environment,
         "Application environment of node {node} ..."),
    Verb("list_feature_flags", "", NODE, "List feature flags.", _list_feature_flags, "Listing feature flags ...",
         "no-table-headers"),
    Verb("report", "", NODE, "Print the output of all verbs that show something.", _report,
         "Reporting server status of node {node} ..."),
    Verb("version", "", NODE, "Print the version of this command.", _version),
    Verb("server_version", "", NODE, "Print the version that the broker announces.", _server_version,
         "Asking node {node} for its RabbitMQ version..."),
    Verb("await_startup", "", NODE, "Wait until the broker accepts clients.", _await_startup),
    Verb("wait", "pidfile?", NODE, "Wait for a pid file, then until the broker accepts clients.", _wait,
         lambda call: f"Waiting for pid file '{call['pidfile']}' to appear" if call["pidfile"] else "", "pid=",
         _has_pid),
    Verb("stop", "pidfile?", NODE, "Stop the broker, and wait for its end.", _stop,
         "Stopping and halting node {node} ...", "idempotent"),
    Verb("shutdown", "", NODE, "The same as stop.", _stop, "Shutting down node {node} ...", "wait no-wait idempotent"),
    Verb("stop_app", "", NODE, "Close all connections and listeners of clients; the process continues.",
         _post("stop-app"), "Stopping the broker application on node {node} ..."),
    Verb("start_app", "", NODE, "Accept clients again after stop_app.", _post("start-app"),
         "Starting node {node} ..."),
    Verb("rotate_logs", "", NODE, "Open the file of the event log again.", _post("rotate-logs"),
         "Reopening logs for node {node} ..."),

    Verb("set_log_level", "level value*", SETTINGS, "Set the level of the event log: [category] level.",
         _set_log_level, _log_level_banner, validate=_is_level),
    Verb("log_level", "level value*", SETTINGS, "The same as set_log_level.", _set_log_level, _log_level_banner,
         validate=_is_level),
    Verb("set_vm_memory_high_watermark", "limit value*", SETTINGS,
         "Set the memory limit until the next start: 0.4, or absolute 2GB.", _set_memory, _memory_banner,
         validate=_is_limit),
    Verb("set_disk_free_limit", "limit value*", SETTINGS,
         "Set the least free disk space until the next start: 50MB, or mem_relative 0.5.", _set_disk, _disk_banner,
         validate=_is_limit),
    Verb("hash_password", "password?", SETTINGS, "Print a hash for definitions files (SHA-256, as RabbitMQ's).",
         _hash_password),

    Verb("plugins", "action name*", PLUGINS, "list, enable, disable, is_enabled: what RabbitMQ has as plugins.",
         _plugins, lambda call: "Listing plugins ..." if call["action"] == "list" else "",
         "minimal enabled implicitly-enabled verbose all online offline"),
)
# fmt: on
