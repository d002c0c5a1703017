"""Definitions of a broker process: at the start, by `warren ctl`, from and to a real RabbitMQ, and under kill -9."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pika
import pytest

from tests.interop.brokers import RABBITMQ, missing
from tests.management.ask_server import with_management
from tests.server.broker_process import BrokerProcess
from tools.bench.peers import start_rabbitmq

OF_RABBITMQ = Path(__file__).parent.parent / "management" / "rabbitmq_definitions.json"
FLAGS = {"durable": True, "auto_delete": False, "arguments": {}}
QUEUES = 20_000
KILLS = 4
GUEST = "guest", "guest"


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}/api/", auth=GUEST, timeout=300, trust_env=False)


def ctl(directory: str, *words: str, content: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "warren.cli.main", "ctl", "--data-dir", directory, *words]
    return subprocess.run(line, input=content, capture_output=True, text=True, timeout=120, check=False)


def publish_and_get(port: int, user: str, password: str, vhost: str) -> list[Any]:
    login = pika.PlainCredentials(user, password)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost, login)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "a.b", b"by key")
        channel.basic_publish("h", "", b"by headers", pika.BasicProperties(headers={"colour": "red", "n": 3}))
        return [channel.basic_get("q1", True)[2] for _ in range(2)]


# -- at the start ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["load_definitions", "definitions.local.path"])
def test_definitions_of_rabbitmq_are_loaded_at_the_start(tmp_path: Path, key: str) -> None:
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(f"definitions.import_backend = local_filesystem\n{key} = {OF_RABBITMQ}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf)) as broker:
        assert publish_and_get(broker.port, "ann", "secret", "blue") == [b"by key", b"by headers"]
        broker.kill()
        broker.start()
        assert publish_and_get(broker.port, "ann", "secret", "blue") == [b"by key", b"by headers"]
        assert "is ignored" not in broker.log


def test_the_files_of_a_directory_are_one_import(tmp_path: Path) -> None:
    parts = tmp_path / "definitions"
    parts.mkdir()
    whole = json.loads(OF_RABBITMQ.read_text())
    for number, section in enumerate(["bindings", "queues", "exchanges", "policies", "permissions", "users", "vhosts"]):
        (parts / f"{number}.json").write_text(json.dumps({section: whole[section]}))
    (parts / "notes.txt").write_text("no JSON")
    with BrokerProcess(tmp_path / "data", "--load-definitions", str(parts)) as broker:
        assert publish_and_get(broker.port, "ann", "secret", "blue") == [b"by key", b"by headers"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{not json", "not_json"),
        ('{"queues":[{"name":"q","vhost":"nowhere","durable":true,"auto_delete":false}]}', "'nowhere'"),
        (None, "there are no definitions at"),
    ],
)
def test_a_start_fails_with_its_definitions_and_names_the_file(tmp_path: Path, content: str | None, why: str) -> None:
    file = tmp_path / "definitions.json"
    if content is not None:
        file.write_text(content)
    line = [sys.executable, "-m", "warren.cli.main", "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    line += ["--management-port", "0", "--prometheus-port", "0", "--load-definitions", str(file)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert str(file) in done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr


# -- by warren ctl ---------------------------------------------------------------------------------------------------


def test_ctl_exports_and_imports_on_a_running_and_on_a_stopped_broker(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with BrokerProcess(tmp_path / "data") as broker:
        done = ctl(broker.directory, "import_definitions", str(OF_RABBITMQ))
        assert done.returncode == 0, done.stderr
        assert publish_and_get(broker.port, "ann", "secret", "blue") == [b"by key", b"by headers"]
        done = ctl(broker.directory, "export_definitions", str(file))
        assert done.returncode == 0, done.stderr
    exported = json.loads(file.read_text())
    assert {"blue", "/"} == {vhost["name"] for vhost in exported["vhosts"]}
    stopped = str(tmp_path / "data")
    more = {"queues": [{"name": "offline", "vhost": "blue", **FLAGS}]}
    done = ctl(stopped, "import_definitions", content=json.dumps(more))
    assert done.returncode == 0, done.stderr
    done = ctl(stopped, "export_definitions", "-")
    assert done.returncode == 0, done.stderr
    assert "offline" in {queue["name"] for queue in json.loads(done.stdout)["queues"]}
    done = ctl(stopped, "import_definitions", content='{"queues":[{"name":"q","vhost":"/","durable":7}]}')
    assert done.returncode != 0
    assert "queue: name 'q'" in done.stderr


# -- permissions of open connections ---------------------------------------------------------------------------------


def test_imported_permissions_reach_open_connections(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, client(broker.management_port) as api:
        user = {"name": "bob", "password": "secret", "tags": ""}
        nothing = {"user": "bob", "vhost": "/", "configure": "^$", "write": "^$", "read": "^$"}
        assert api.post("definitions", json={"users": [user], "permissions": [nothing]}).status_code == 204
        login = pika.PlainCredentials("bob", "secret")
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, "/", login)) as connection:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker):
                connection.channel().queue_declare("mine")
            everything = {**nothing, "configure": ".*"}
            assert api.post("definitions", json={"permissions": [everything]}).status_code == 204
            connection.channel().queue_declare("mine")


# -- all or nothing --------------------------------------------------------------------------------------------------


def document(vhost: str) -> dict[str, Any]:
    queues = [{"name": f"q{number}", "vhost": vhost, **FLAGS} for number in range(QUEUES)]
    exchange = {"name": "x", "vhost": vhost, "type": "topic", "internal": False, **FLAGS}
    ends = {"source": "x", "vhost": vhost, "destination_type": "queue", "arguments": {}}
    bindings = [{**ends, "destination": each["name"], "routing_key": each["name"]} for each in queues[::10]]
    return {"vhosts": [{"name": vhost}], "exchanges": [exchange], "queues": queues, "bindings": bindings}


@pytest.mark.slow
def test_an_import_that_is_killed_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    rng = random.Random(14)
    with BrokerProcess(tmp_path / "data") as broker:
        with client(broker.management_port) as api:
            began = time.monotonic()
            assert api.post("definitions", json=document("whole")).status_code == 204
            seconds = time.monotonic() - began
        print(f"import of {QUEUES} queues: {seconds:.1f} s")
        for number in range(KILLS):
            sending = Thread(target=post_until_killed, args=(broker.management_port, document(f"v{number}")))
            sending.start()
            time.sleep(seconds * 1.2 * rng.random())  # any moment: nothing is waited for
            broker.kill()
            sending.join()
            broker.start()
            with client(broker.management_port) as api:
                found = api.get("definitions").json()
            counts = {"queues": QUEUES, "exchanges": 1, "bindings": QUEUES // 10}
            whole = {vhost["name"] for vhost in found["vhosts"]} - {"/"}
            for section, count in counts.items():
                by_vhost = [item["vhost"] for item in found[section]]
                assert {vhost: by_vhost.count(vhost) for vhost in whole} == dict.fromkeys(whole, count), section
                assert set(by_vhost) <= whole
            assert "whole" in whole


def post_until_killed(port: int, content: dict[str, Any]) -> None:
    with client(port) as api:
        try:
            api.post("definitions", json=content)
        except httpx.HTTPError:
            return


@pytest.mark.slow
def test_publishers_go_on_while_definitions_are_imported(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port, "/", pika.PlainCredentials(*GUEST))
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("traffic", durable=True)
            statuses: list[int] = []

            def post() -> None:
                with client(broker.management_port) as api:
                    statuses.append(api.post("definitions", json=document("/")).status_code)

            sending = Thread(target=post)
            sending.start()
            published = 0
            while sending.is_alive() or not published:
                channel.basic_publish("", "traffic", b"%d" % published, pika.BasicProperties(delivery_mode=2))
                published += 1
            sending.join()
            assert statuses == [204]
            channel.basic_publish("x", "q10", b"routed")
            assert channel.basic_get("q10", True)[2] == b"routed"
            bodies = [channel.basic_get("traffic", True)[2] for _ in range(published)]
            assert bodies == [b"%d" % number for number in range(published)]


# -- a real RabbitMQ -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(RABBITMQ in missing(), reason="rabbitmq-server is not installed")
def test_an_export_of_warren_imports_into_rabbitmq_and_back(tmp_path: Path) -> None:
    with (
        start_rabbitmq(tmp_path / "rabbitmq") as peer,
        BrokerProcess(tmp_path / "data", "--password-hashing", "sha256") as broker,
        client(broker.management_port) as warren,
    ):
        port = with_management(peer)
        with client(port) as rabbitmq:
            assert warren.post("definitions", json=json.loads(OF_RABBITMQ.read_text())).status_code == 204
            exported = warren.get("definitions").json()
            assert "warnings" not in exported
            answer = rabbitmq.post("definitions", json=exported)
            assert answer.status_code == 204, answer.text
            assert publish_and_get(peer.port, "ann", "secret", "blue") == [b"by key", b"by headers"]
            again = rabbitmq.get("definitions").json()
            for section in ("queues", "exchanges", "bindings", "policies", "permissions", "users"):
                assert by_content(again[section]) == by_content(exported[section]), section
            assert warren.post("definitions", json=again).status_code == 204


def by_content(items: list[Any]) -> list[str]:
    dump: Callable[[Any], str] = lambda item: json.dumps(item, sort_keys=True)  # noqa: E731
    return sorted(map(dump, items))
