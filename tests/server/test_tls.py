"""AMQP and HTTP over TLS: real certificates, real clients, reload without dropping connections."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import httpx
import pika
import pika.exceptions
import pytest
from pika.credentials import ExternalCredentials

from tests.server.broker_process import BrokerProcess
from tests.server.certificates import Authority, Certificate

SECONDS_MAX = 10.0
REFUSED = (pika.exceptions.AMQPConnectionError, OSError)  # by TLS, or the broker closes the socket


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_certificate(authority: Authority) -> Certificate:
    return authority.issue("server")


def broker_of(tmp_path: Path, authority: Authority, certificate: Certificate, *lines: str) -> BrokerProcess:
    files = ("cacertfile", authority.cert), ("certfile", certificate.cert), ("keyfile", certificate.key)
    tls = [f"ssl_options.{key} = {path}" for key, path in files]
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("\n".join(["listeners.ssl.default = 127.0.0.1:0", *tls, *lines]) + "\n")
    return BrokerProcess(tmp_path / "data", "--config", str(conf))


def connect(broker: BrokerProcess, context: ssl.SSLContext, **parameters: Any) -> Any:
    tls = pika.SSLOptions(context, "localhost")
    where = {"host": "127.0.0.1", "port": broker.amqps_port, "ssl_options": tls, **parameters}
    return pika.BlockingConnection(pika.ConnectionParameters(**where))


def round_trip(connection: Any, body: bytes = b"x" * 200_000) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("queue")
    channel.basic_publish("", "queue", body)
    assert channel.basic_get("queue", auto_ack=True)[2] == body
    channel.close()


def presented(broker: BrokerProcess, authority: Authority) -> bytes:
    """The certificate that a new connection sees."""
    with (
        socket.create_connection(("127.0.0.1", broker.amqps_port), SECONDS_MAX) as plain,
        authority.client_context().wrap_socket(plain, server_hostname="localhost") as client,
    ):
        return client.getpeercert(binary_form=True) or b""


def wait_for_log(broker: BrokerProcess, text: str) -> None:
    wait_until(lambda: text in broker.log, f"{text} is not in the log")


def wait_until(condition: Callable[[], bool], otherwise: str = "") -> None:
    until = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.02)


def test_clients_publish_and_get_over_tls(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    """Also on a second plain listener, and with aio-pika."""

    async def with_aio_pika(port: int) -> bytes:
        url = f"amqps://guest:guest@localhost:{port}/?cafile={authority.cert}"
        connection = await aio_pika.connect(url, ssl_options=aio_pika.abc.SSLOptions(cafile=str(authority.cert)))
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("other")
            await channel.default_exchange.publish(aio_pika.Message(b"m"), "other")
            message = await queue.get(timeout=SECONDS_MAX)
            await message.ack()
            return message.body

    lines = "listeners.tcp.1 = 127.0.0.1:5672", "listeners.tcp.2 = 127.0.0.1:0"
    with broker_of(tmp_path, authority, server_certificate, *lines) as broker:
        with connect(broker, authority.client_context()) as connection:
            round_trip(connection)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            round_trip(connection)
        assert asyncio.run(with_aio_pika(broker.amqps_port)) == b"m"


def test_plain_tcp_can_be_switched_off(tmp_path: Path, authority: Authority, server_certificate: Certificate) -> None:
    with broker_of(tmp_path, authority, server_certificate, "listeners.tcp = none") as broker:
        assert broker.port == 0
        with connect(broker, authority.client_context()) as connection:
            round_trip(connection)


def test_what_is_not_tls_or_too_old_is_refused_with_a_line_in_the_log(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    lines = "ssl_options.versions.1 = tlsv1.3", "ssl_handshake_timeout = 500"
    with broker_of(tmp_path, authority, server_certificate, *lines) as broker:
        old = authority.client_context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(REFUSED):
            connect(broker, old)
        with socket.create_connection(("127.0.0.1", broker.amqps_port), SECONDS_MAX) as plain:
            plain.sendall(b"AMQP\x00\x00\x09\x01" + bytes(16))
            while plain.recv(100):
                continue
        wait_for_log(broker, "UNSUPPORTED_PROTOCOL")
        wait_for_log(broker, "WRONG_VERSION_NUMBER")
        with socket.create_connection(("127.0.0.1", broker.amqps_port), SECONDS_MAX) as silent:
            assert silent.recv(1) == b""  # the time limit of the handshake
        with connect(broker, authority.client_context()) as connection:
            round_trip(connection)
        assert httpx_alarms(broker) == 200


def httpx_alarms(broker: BrokerProcess) -> int:
    url = f"http://127.0.0.1:{broker.management_port}/api/health/checks/alarms"
    return httpx.get(url, auth=("guest", "guest")).status_code


def test_a_client_needs_a_certificate_that_our_authority_signed(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger").issue("client", "/CN=ann")
    lines = "ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true"
    with broker_of(tmp_path, authority, server_certificate, *lines) as broker:
        for certificate in (None, stranger):
            with pytest.raises(REFUSED):
                connect(broker, authority.client_context(certificate))
        with connect(broker, authority.client_context(authority.issue("client", "/CN=ann"))) as connection:
            round_trip(connection)


@pytest.mark.parametrize(("source", "user"), [("common_name", "ann"), ("distinguished_name", "CN=ann,OU=a\\,b,O=shop")])
def test_external_clients_are_the_user_of_their_certificate(
    tmp_path: Path, authority: Authority, server_certificate: Certificate, source: str, user: str
) -> None:
    ann = authority.issue("ann", "/O=shop/OU=a,b/CN=ann")
    lines = (
        "ssl_options.verify = verify_peer",
        "auth_mechanisms.1 = PLAIN",
        "auth_mechanisms.2 = EXTERNAL",
        f"ssl_cert_login_from = {source}",
        f"default_user = {user}",
    )
    with broker_of(tmp_path, authority, server_certificate, *lines) as broker:
        external = {"credentials": ExternalCredentials()}
        with connect(broker, authority.client_context(ann), **external) as connection:
            round_trip(connection)
        for wrong in (None, authority.issue("bob", "/CN=bob")):
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                connect(broker, authority.client_context(wrong), **external)
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port, **external)
        with pytest.raises(REFUSED):  # not offered without TLS
            pika.BlockingConnection(parameters)


def test_sighup_reloads_certificates_and_drops_no_connection(tmp_path: Path, authority: Authority) -> None:
    first = authority.issue("reloaded")
    with broker_of(tmp_path, authority, first) as broker:
        before = first.der
        assert presented(broker, authority) == before
        with connect(broker, authority.client_context()) as connection:
            after = authority.issue("reloaded").der
            broker.process.send_signal(signal.SIGHUP)
            wait_for_log(broker, "certificates reloaded")
            assert presented(broker, authority) == after != before
            first.cert.write_text("broken")
            broker.process.send_signal(signal.SIGHUP)
            wait_for_log(broker, "certificates not reloaded")
            assert presented(broker, authority) == after
            round_trip(connection)


def test_sighup_reopens_the_event_log_as_well(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    log, moved = tmp_path / "events.log", tmp_path / "events.log.1"
    with broker_of(tmp_path, authority, server_certificate, f"log.file = {log}") as broker:
        log.rename(moved)
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: log.exists() and "certificates reloaded" in log.read_text())
        text = log.read_text()
        assert text.index("event log reopened") < text.index("certificates reloaded")
        for kind, port in (("amqp", broker.port), ("amqps", broker.amqps_port)):
            assert f"listening protocol={kind} address=127.0.0.1:{port}" in moved.read_text()


def test_all_listeners_are_suspended_and_resumed_together(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    with broker_of(tmp_path, authority, server_certificate) as broker:
        ports = broker.port, broker.amqps_port
        url = f"http://127.0.0.1:{broker.management_port}/api"
        with httpx.Client(timeout=30.0, base_url=url, auth=("guest", "guest")) as http:
            http.post("/warren/stop-app").raise_for_status()
            for port in ports:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
            with socket.create_server(("127.0.0.1", ports[1])):
                assert http.post("/warren/start-app").status_code == 400
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", ports[0]), SECONDS_MAX)
            http.post("/warren/start-app").raise_for_status()
            listeners = http.get("/overview").json()["listeners"]
        assert {("amqp", ports[0]), ("amqp/ssl", ports[1])} <= {(each["protocol"], each["port"]) for each in listeners}
        with connect(broker, authority.client_context()) as connection:
            round_trip(connection)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            round_trip(connection)


SUITES = {
    "TLSv1.3": ("tlsv1.3", "any", "aes_256_gcm", "aead"),
    "ECDHE-ECDSA-AES256-GCM-SHA384": ("tlsv1.2", "ecdhe_ecdsa", "aes_256_gcm", "aead"),
    "ECDHE-ECDSA-AES128-SHA256": ("tlsv1.2", "ecdhe_ecdsa", "aes_128_cbc", "sha256"),
}


@pytest.mark.parametrize("suite", SUITES)
def test_the_api_shows_tls_and_certificate_of_a_connection_in_the_words_of_rabbitmq(
    tmp_path: Path, authority: Authority, server_certificate: Certificate, suite: str
) -> None:
    """The values are what RabbitMQ 3.10 answers for the same certificates and ciphers."""
    ann = authority.issue("ann", "/O=shop/OU=a,b/CN=ann")
    with broker_of(tmp_path, authority, server_certificate, "ssl_options.verify = verify_peer") as broker:
        for certificate in (ann, None):
            context = authority.client_context(certificate)
            if suite != "TLSv1.3":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(suite)
            with connect(broker, context):
                url = f"http://127.0.0.1:{broker.management_port}/api/connections"
                [item] = httpx.get(url, auth=("guest", "guest")).json()
            fields = "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash"
            assert item["ssl"] is True
            assert tuple(item[name] for name in fields) == SUITES[suite]
            names = [item["peer_cert_subject"], item["peer_cert_issuer"]]
            if certificate is None:
                assert [*names, item["peer_cert_validity"]] == [None, None, None]
            else:
                assert names == ["CN=ann,OU=a\\,b,O=shop", "CN=authority"]
                assert item["peer_cert_validity"] == validity_by_openssl(ann)


def validity_by_openssl(certificate: Certificate) -> str:
    line = ["openssl", "x509", "-in", str(certificate.cert), "-noout", "-dates", "-dateopt", "iso_8601"]
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return " - ".join(each.partition("=")[2].replace(" ", "T") for each in output.splitlines())


def test_a_removed_authority_is_not_trusted_after_a_reload(tmp_path: Path, authority: Authority) -> None:
    clients = Authority(tmp_path / "clients", "clients")
    client = clients.issue("client")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(clients.cert.read_text() + authority.cert.read_text())
    lines = "ssl_options.verify = verify_peer", f"ssl_options.cacertfile = {trusted}"
    with broker_of(tmp_path, authority, authority.issue("server2"), *lines) as broker:
        connect(broker, authority.client_context(client)).close()
        trusted.write_text(authority.cert.read_text())
        broker.process.send_signal(signal.SIGHUP)
        wait_for_log(broker, "certificates reloaded")
        with pytest.raises(REFUSED):
            connect(broker, authority.client_context(client))


def test_the_management_api_is_served_over_https_only_if_no_other_port_is_set(
    tmp_path: Path, authority: Authority
) -> None:
    """With the certificate of AMQP, and health checks that know it."""
    lines = "management.ssl.port = 0", "management.ssl.ip = 127.0.0.1"
    certificate = authority.issue("https", days=10)
    files = ("certfile", certificate.cert), ("keyfile", certificate.key)
    conf = tmp_path / "rabbitmq.conf"
    tls = [f"ssl_options.{key} = {path}" for key, path in files]
    conf.write_text("\n".join(["listeners.ssl.default = 127.0.0.1:0", *tls, *lines]))
    options = "--config", str(conf), "--management-ssl-port", "0"
    with (
        BrokerProcess(tmp_path / "data", *options) as broker,
        httpx.Client(
            base_url=f"https://localhost:{broker.management_tls_port}/api",
            auth=("guest", "guest"),
            verify=authority.client_context(),
        ) as client,
    ):
        assert broker.management_port == 0
        assert client.get("/whoami").json()["name"] == "guest"
        checks = "/health/checks"
        for protocol in ("amqp", "amqps", "amqp%2Fssl", "https"):
            assert client.get(f"{checks}/protocol-listener/{protocol}").status_code == 200
        assert client.get(f"{checks}/protocol-listener/http").status_code == 503
        assert client.get(f"{checks}/port-listener/{broker.amqps_port}").status_code == 200
        assert client.get(f"{checks}/certificate-expiration/1/weeks").json() == {"status": "ok"}
        expiring = client.get(f"{checks}/certificate-expiration/2/weeks")
        assert (expiring.status_code, expiring.json()["reason"]) == (503, "Certificates expiring")
        ports = {each["protocol"]: each["port"] for each in expiring.json()["expired"]}
        assert ports == {"amqp/ssl": broker.amqps_port, "https": broker.management_tls_port}
        for wrong, reason in (
            ("1/fortnights", "Time unit not recognised. Supported units: days, weeks, months, years."),
            ("soon/days", "Invalid expiration value."),
        ):
            refused = client.get(f"{checks}/certificate-expiration/{wrong}")
            assert (refused.status_code, refused.json()["reason"]) == (400, reason)


def test_both_http_ports_are_served_if_both_are_set(
    tmp_path: Path, authority: Authority, server_certificate: Certificate
) -> None:
    files = ("certfile", server_certificate.cert), ("keyfile", server_certificate.key)
    options = [part for key, path in files for part in (f"--management-ssl-{key}", str(path))]
    with BrokerProcess(tmp_path / "data", "--management-ssl-port", "0", "--management-port", "0", *options) as broker:
        context = authority.client_context()
        for url in (f"http://localhost:{broker.management_port}", f"https://localhost:{broker.management_tls_port}"):
            answer = httpx.get(f"{url}/api/overview", auth=("guest", "guest"), verify=context)
            assert answer.status_code == 200


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["listeners.ssl.1 = 0"], "ssl_options.certfile is not set"),
        (["listeners.ssl.1 = 0", "ssl_options.certfile = /none.pem"], "/none.pem and its key : No such file"),
        (
            ["listeners.ssl.1 = 0", "ssl_options.certfile = {cert}", "ssl_options.keyfile = {encrypted}"],
            "the key is encrypted",
        ),
        (
            ["listeners.ssl.1 = 0", "ssl_options.certfile = {both}", "ssl_options.verify = verify_peer"],
            "ssl_options.cacertfile is not set",
        ),
        (["listeners.tcp = none"], "plain TCP is switched off, and there is no listener with TLS"),
    ],
)
def test_certificates_that_cannot_be_used_are_refused_at_the_start(
    tmp_path: Path, server_certificate: Certificate, lines: list[str], text: str
) -> None:
    encrypted = tmp_path / "encrypted.key"
    hiding: list[str | Path] = ["openssl", "ec", "-aes128", "-passout", "pass:secret"]
    hiding += ["-in", server_certificate.key, "-out", encrypted]
    subprocess.run(hiding, check=True, capture_output=True)
    both, conf = tmp_path / "both.pem", tmp_path / "rabbitmq.conf"
    both.write_text(server_certificate.cert.read_text() + server_certificate.key.read_text())
    paths = {"cert": server_certificate.cert, "both": both, "encrypted": encrypted}
    conf.write_text("\n".join(lines).format(**paths))
    with pytest.raises(RuntimeError, match="does not start") as refused:
        BrokerProcess(tmp_path / "data", "--config", str(conf))
    assert text in str(refused.value)
