"""Requests generated from /api/openapi.json, sent to a real broker by schemathesis: `make fuzz`, or

python -m tests.fuzz.http --seconds 600 --seed 7

Random names would reach nothing but 404, so the document is changed first: a name in a path is either one of a few that
the broker has, or any text. The user of the requests is neither changed nor deleted, the vhost `/` is not
deleted, and no request stops the broker or sets its limits.

Checked: no answer is a 5xx (health checks may be 503), its status is documented, and so are its content type and shape.
A failing request is printed as a line of curl.
"""

from __future__ import annotations

import argparse
import copy
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.server.broker_process import BrokerProcess

LOGIN = ("guest", "guest")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
LEFT_OUT = "/api/warren/(stop|stop-app|start-app|memory-limit|disk-limit)"
# TRACE and QUERY are answered 501, as in RabbitMQ: methods are in tests/management/test_application.py.
CONFIGURATION = """\
[phases.coverage]
unexpected-methods = []

[[operations]]
include-path-regex = "^/api/(health/checks|aliveness-test)/"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503]
"""
# What the broker has before the first request; random requests delete and declare it again.
NAMES = {
    "vhost": ["/", "fuzzed"],
    "name": ["q1", "amq.topic", "p1"],
    "user": ["ann"],
    "source": ["amq.default", "amq.topic"],
    "destination": ["q1", "amq.fanout"],
    "properties_key": ["~", "key"],
    "exchange": ["amq.topic"],
    "component": ["vhost-limits", "policy"],
    "limit": ["max-connections", "max-channels", "max-queues"],
    "port": ["1", "70000"],
    "protocol": ["amqp"],
}
DECLARED = {
    "vhosts/fuzzed": {},
    "users/ann": {"password": "secret", "tags": "management"},
    "permissions/%2F/ann": {"configure": ".*", "write": ".*", "read": ".*"},
    "queues/%2F/q1": {},
    "queues/fuzzed/q1": {"durable": True, "arguments": {"x-max-priority": 3}},
    "policies/%2F/p1": {"pattern": "^q", "definition": {"max-length": 100}},
}


class FuzzResult(NamedTuple):
    exit_code: int
    output: str
    log: str  # of the broker


def fuzz(directory: Path, seed: int, seconds: int, examples_max: int) -> FuzzResult:
    with BrokerProcess(directory / "data") as broker:
        address = f"http://127.0.0.1:{broker.management_port}"
        with httpx.Client(base_url=f"{address}/api/", auth=LOGIN) as client:
            for path, body in DECLARED.items():
                client.put(path, json=body).raise_for_status()
            document = _with_names(client.get("openapi.json").json(), client.get("overview").json()["node"])
        (directory / "openapi.json").write_text(json.dumps(document))
        (directory / "schemathesis.toml").write_text(CONFIGURATION)
        line = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", "schemathesis.toml", "--no-color"]
        line += ["run", "openapi.json", "--url", address, "--auth", ":".join(LOGIN), "--checks", CHECKS]
        line += ["--phases", "coverage,fuzzing", "--exclude-path-regex", LEFT_OUT, "--warnings", "off"]
        line += ["--seed", str(seed), "--max-time", str(seconds), "--max-examples", str(examples_max)]
        line += ["--generation-database", "none", "--continue-on-failure", "--request-timeout", "30"]
        done = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
        return FuzzResult(done.returncode, done.stdout + done.stderr, broker.log)


def _with_names(document: dict[str, Any], node: str) -> dict[str, Any]:
    """The document with names of existing objects in its paths."""
    changed = copy.deepcopy(document)
    names = NAMES | {"node": [node]}
    for path, operations in changed["paths"].items():
        for method, operation in operations.items():
            protected = {"user": [LOGIN[0]]} if method != "get" else {}
            protected |= {"vhost": ["/"]} if (method, path) == ("delete", "/api/vhosts/{vhost}") else {}
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    name = parameter["name"]
                    parameter["schema"] = _name(names.get(name, ["none"]), protected.get(name, []))
    return changed


def _name(known: list[str], protected: list[str]) -> dict[str, Any]:
    chosen = {"enum": [each for each in known if each not in protected]}
    return {"anyOf": [chosen, {"type": "string", "minLength": 1, "not": {"enum": protected}}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--examples", type=int, default=500, help="at most, for each operation")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = fuzz(Path(directory), given.seed, given.seconds, given.examples)
    print(result.output)
    print(f"seed {given.seed}")
    sys.exit(result.exit_code)


if __name__ == "__main__":
    main()
