"""A verb of the table, and one call of it: its arguments, its options, and requests to the management API.

A request that the broker refuses becomes an exit code of rabbitmqctl. Its HTTP status does not say whether the user or
the vhost is missing, so that is requested afterwards:

    400, 404 ──▶ GET /api/vhosts/V ──404──▶ 65 or 69        GET /api/users/U ──404──▶ 67        else 69 and the reason
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from warren.cli.ctl.client import (
    DATA,
    NO_USER,
    TIMED_OUT,
    UNAVAILABLE,
    USAGE,
    ApiAnswer,
    ApiClient,
    CtlError,
    FilesClient,
    UnixClient,
    UrlClient,
)
from warren.cli.ctl.output import Result

DEFAULT_TIMEOUT_SECONDS = 60.0
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Verb(NamedTuple):
    name: str
    arguments: str  # names: `username password?` (? optional, * any number)
    group: str
    help: str
    run: Callable[[Call], Result]
    banner: str | Callable[[Call], str] = ""  # printed first; {name} is an argument or option, or {node}
    options: str = ""  # names: `priority= if-empty` (= takes a value)
    validate: Callable[[Call], None] | None = None  # before the banner
    is_vhost: bool = False  # concerns the vhost of --vhost
    works_stopped: bool = False  # through the files, if the broker does not run
    no_user_code: int = NO_USER

    @property
    def parameters(self) -> list[Parameter]:
        return [Parameter(word.rstrip("?*"), word[-1] in "?*", word.endswith("*")) for word in self.arguments.split()]

    @property
    def usage(self) -> str:
        options = ["vhost="] if self.is_vhost else []
        shown = [_shown_option(each) for each in [*options, *self.options.split()]]
        return " ".join([self.name, *shown, *(each.usage for each in self.parameters)])


class Parameter(NamedTuple):
    name: str
    is_optional: bool
    is_many: bool

    @property
    def usage(self) -> str:
        text = f"<{self.name}> ..." if self.is_many else f"<{self.name}>"
        return f"[{text}]" if self.is_optional else text


def _shown_option(option: str) -> str:
    name, has_value, _ = option.partition("=")
    return f"[--{name} <{name}>]" if has_value else f"[--{name}]"


class WrongUsage(CtlError):
    """Printed with the usage of the verb."""

    def __init__(self, text: str, code: int = DATA) -> None:
        super().__init__(code, text)


def bad_value(text: str = "") -> WrongUsage:
    return WrongUsage(f"Bad argument: {text}" if text else "Bad argument.")


def path(*parts: str, **query: str) -> str:
    """`path("queues", "/", "a b")` is /api/queues/%2F/a%20b."""
    pairs = "&".join(f"{_quoted(name.replace('_', '-'))}={_quoted(value)}" for name, value in query.items())
    return "/".join(["/api", *map(_quoted, parts)]) + (f"?{pairs}" if pairs else "")


def _quoted(part: str) -> str:
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in part.encode(errors="surrogateescape")
    )


class Call:
    def __init__(
        self,
        verb: Verb,
        arguments: Mapping[str, str],
        many: Sequence[str],
        options: Mapping[str, str],
        client: ApiClient,
        read_secret: Callable[[], str],
        run_verb: Callable[[str, Sequence[str]], str],
    ) -> None:
        """`many`: values of the last parameter, where it takes any number; `run_verb`: the output of another verb."""
        self.verb = verb
        self.arguments = arguments
        self.many = many
        self.options = options
        self.client = client
        self.read_secret = read_secret
        self.run_verb = run_verb

    def __getitem__(self, name: str) -> str:
        return self.node if name == "node" else self.arguments.get(name, self.options.get(name, ""))

    def has(self, option: str) -> bool:
        return option in self.options

    @property
    def vhost(self) -> str:
        return self.options["vhost"]

    @property
    def banner(self) -> str:
        banner = self.verb.banner
        return banner.format_map(self) if isinstance(banner, str) else banner(self)

    @property
    def is_local(self) -> bool:
        """Whether Warren's own routes are there for certain."""
        return not isinstance(self.client, UrlClient)

    @property
    def timeout_seconds(self) -> float | None:
        return timeout_of(self.options)

    @cached_property
    def node(self) -> str:
        """The name of the node; of this machine's broker, if it does not answer."""
        try:
            answer = self.client.request("GET", path("nodes", columns="name"))
            return str(answer.content[0]["name"]) if answer.is_good else self.local_node
        except CtlError:
            return self.local_node

    @property
    def local_node(self) -> str:
        from os import uname

        return self.options.get("node") or f"warren@{uname().nodename.partition('.')[0] or 'localhost'}"

    # -- requests ------------------------------------------------------------------------------------------------

    def get(self, *parts: str, **query: str) -> Any:
        return self.send("GET", path(*parts, **query))

    def put(self, *parts: str, **body: Any) -> Any:
        return self.send("PUT", path(*parts), body)

    def delete(self, *parts: str, **query: str) -> Any:
        return self.send("DELETE", path(*parts, **query))

    def send(self, method: str, where: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The content of the answer; a refusal is a `CtlError`."""
        answer = self.client.request(method, where, body, headers)
        if not answer.is_good:
            raise self.refused(answer)
        return answer.content

    def find(self, *parts: str) -> Any:
        """The same as `get`; None if there is no such thing."""
        answer = self.client.request("GET", path(*parts))
        if answer.status == 404:
            return None
        if not answer.is_good:
            raise self.refused(answer)
        return answer.content

    def refused(self, answer: ApiAnswer) -> CtlError:
        if answer.status == 401:
            return CtlError(UNAVAILABLE, f"not permitted at {self.client.name}: {answer.reason or 'no login'}")
        if answer.status in (400, 404):
            if self.verb.is_vhost and self.find("vhosts", self.vhost) is None:
                return self.no_vhost(self.vhost)
            user = self["username"]
            if user and self.find("users", user) is None:
                return self.no_user(user)
        return CtlError(UNAVAILABLE, answer.reason or f"{self.client.name} answered with HTTP status {answer.status}")

    def user(self) -> Any:
        """The user of the verb's argument; refused if there is none."""
        found = self.find("users", self["username"])
        if found is None:
            raise self.no_user(self["username"])
        return found

    def no_user(self, name: str) -> CtlError:
        shown = name if self.verb.is_vhost else f'"{name}"'
        return CtlError(self.verb.no_user_code, f"User {shown} does not exist")

    def no_vhost(self, name: str) -> CtlError:
        if self["username"]:
            return CtlError(UNAVAILABLE, f"Virtual host {name} does not exist")
        return CtlError(DATA, f"Virtual host '{name}' does not exist", has_label=False)

    def json_argument(self, name: str) -> Any:
        try:
            return json.loads(self[name])
        except (ValueError, RecursionError) as error:
            raise CtlError(UNAVAILABLE, f"JSON decoding error. Reason: {error}") from error


def timeout_of(options: Mapping[str, str]) -> float | None:
    """Seconds; None for `infinity`."""
    value = options.get("timeout", "")
    if not value:
        return DEFAULT_TIMEOUT_SECONDS
    if value == "infinity":
        return None
    if not (value.isascii() and value.isdecimal() and 0 < int(value) < 1 << 31):
        raise WrongUsage(f"Invalid options for this command:\n--timeout : {value}", USAGE)
    return float(value)


def timed_out(call: Call, seconds: float | None = None) -> CtlError:
    spent_ms = int((seconds or call.timeout_seconds or 0) * 1000)
    text = f"Error: operation {call.verb.name} on node {call.local_node} timed out. Timeout value used: {spent_ms}"
    return CtlError(TIMED_OUT, text, has_label=False)


def is_by_files(call: Call) -> bool:
    return isinstance(call.client, FilesClient)


def is_by_socket(call: Call) -> bool:
    return isinstance(call.client, UnixClient)
