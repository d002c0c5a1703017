"""Ports are bound before the directory is opened, and nothing is answered before it is."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.server.raw_client import HEADER, RawClient
from warren.amqp import methods
from warren.app.broker import open_broker
from warren.app.lifecycle import BoundPorts
from warren.base.errors import Refused
from warren.config.configuration import Configuration, configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.server.server import Server


def configuration(directory: Path, **values: object) -> Configuration:
    chosen = {"data_dir": str(directory), "port": 0, "management_port": 0, "prometheus_port": 0} | values
    return configuration_of(Environment.real().files, OptionValues(**chosen), {})


def test_a_client_that_connects_before_the_recovery_is_served_after_it(tmp_path: Path) -> None:
    chosen = configuration(tmp_path / "data")
    with BoundPorts(chosen) as ports, RawClient(ports.amqp[0].getsockname()[1]) as client:
        client.send(HEADER)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.frame()
        client.socket.settimeout(20.0)
        broker = open_broker(chosen)
        try:
            asyncio.run(greeted(broker.server, ports, client))
        finally:
            broker.close()


async def greeted(server: Server, ports: BoundPorts, client: RawClient) -> None:
    await server.start(ports.amqp)
    await asyncio.to_thread(client.expect, methods.ConnectionStart)
    await server.stop(0.0)


@pytest.mark.parametrize("option", ["port", "management_port", "management_ssl_port", "prometheus_port"])
def test_a_port_in_use_is_refused_and_no_other_port_stays_bound(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        ports = {"management_port" if option == "port" else "port": port, option: taken.getsockname()[1]}
        with pytest.raises(Refused, match="already in use"):
            BoundPorts(configuration(tmp_path / "data", **ports))
        socket.create_server(("127.0.0.1", port)).close()
    assert not (tmp_path / "data").exists()


def test_every_address_of_a_host_is_listened_at(tmp_path: Path) -> None:
    families = {family for family, *_ in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with BoundPorts(configuration(tmp_path / "data", host="localhost", management_host="127.0.0.1")) as ports:
        assert {each.family for each in ports.amqp} == families


def test_listeners_with_tls_are_bound_as_well(tmp_path: Path) -> None:
    addresses = (("127.0.0.1", 0), ("", 0))
    with BoundPorts(configuration(tmp_path / "data", ssl_listeners=addresses, management_ssl_port=0)) as ports:
        assert ports.management_tls is not None
        for each in (*ports.amqp, *ports.amqps, ports.management_tls):
            socket.create_connection(each.getsockname()).close()
        assert len(ports.amqps) == len(addresses)
        taken = ports.amqps[1].getsockname()
        with pytest.raises(Refused, match="already in use") as refused:
            BoundPorts(configuration(tmp_path / "data", ssl_listeners=(("", 0), taken)))
    assert refused.value.hint == "stop the other process, or choose another listeners.ssl"


def test_an_address_of_another_machine_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"cannot listen at 192\.0\.2\.1:0") as refused:
        BoundPorts(configuration(tmp_path / "data", host="192.0.2.1"))
    assert refused.value.hint == "choose another --host"
