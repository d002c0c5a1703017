"""Keys of rabbitmq.conf: what they mean, what is passed over with a warning, and what is refused."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.options import IGNORED_KEYS, KEYS, OptionValues, read_keys
from warren.config.parse import parse


def read(text: str) -> tuple[OptionValues, list[str]]:
    return read_keys(parse(text, "r.conf"))


def test_a_key_is_honoured_or_ignored() -> None:
    assert not set(KEYS) & set(IGNORED_KEYS)


def test_keys_that_users_of_rabbitmq_write_are_understood() -> None:
    choices, warnings = read(
        """
        listeners.tcp.default = 0.0.0.0:5673
        default_user = ann
        default_pass = 'secret#1'
        default_vhost = prod
        default_permissions.configure = ^ann-
        default_permissions.write = .*
        default_permissions.read =
        default_user_tags.management = true
        default_user_tags.administrator = false
        loopback_users.guest = false
        loopback_users.ann = true
        auth_mechanisms.1 = PLAIN
        heartbeat = 30
        frame_max = 65536
        initial_frame_max = 8192
        channel_max = 100
        max_message_size = 16MiB
        handshake_timeout = 5000
        vm_memory_high_watermark.relative = 0.4
        disk_free_limit.absolute = 2GB
        queue_index_embed_msgs_below = 2kB
        management.tcp.port = 15673
        management.tcp.ip = 127.0.0.1
        prometheus.tcp.port = 15693
        product.name = RabbitMQ
        product.version = 3.13.7
        log.file = warren.log
        log.dir = /var/log/warren
        log.file.level = warning
        """
    )
    assert not warnings
    assert choices == OptionValues(
        host="0.0.0.0",
        port=5673,
        default_user="ann",
        default_pass="secret#1",
        default_vhost="prod",
        default_permissions_configure="^ann-",
        default_permissions_write=".*",
        default_permissions_read="",
        default_user_tags=("management",),
        loopback_users=("ann",),
        auth_mechanisms=("PLAIN",),
        heartbeat=30,
        frame_max=65536,
        initial_frame_max=8192,
        channel_max=100,
        max_message_size=16 << 20,
        handshake_timeout=5.0,
        vm_memory_high_watermark_relative=0.4,
        disk_free_limit_absolute=2_000_000_000,
        queue_index_embed_msgs_below=2000,
        management_port=15673,
        management_host="127.0.0.1",
        prometheus_port=15693,
        product="RabbitMQ",
        product_version="3.13.7",
        log_file="/var/log/warren/warren.log",
        log_level="warning",
    )


def test_loopback_users_can_be_empty() -> None:
    assert read("heartbeat = 1")[0]["loopback_users"] == ("guest",)
    assert read("loopback_users = none")[0]["loopback_users"] == ()
    assert read("loopback_users.guest = none")[0]["loopback_users"] == ()


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("log.file = false", ""),
        ("log.file = true\nlog.dir = /var/log", "/var/log/warren.log"),
        ("log.file = /a/b.log\nlog.dir = /var/log", "/a/b.log"),
        ("log.file = b.log", "b.log"),
        ("log.console = true", None),
    ],
)
def test_the_log_has_a_file_and_a_directory(lines: str, path: str | None) -> None:
    assert read(lines)[0].get("log_file") == path


def test_the_last_of_repeated_keys_counts() -> None:
    choices, warnings = read("heartbeat = 1\nheartbeat = 2\nlisteners.tcp.a = 1\nlisteners.tcp.a = 2")
    assert (choices["heartbeat"], choices["port"], warnings) == (2, 2, [])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no.such.key = 1", "unknown key"),
        ("heartbeats = 1", "unknown key"),
        ("management.load_definitions = /etc/d.json", "the key is load_definitions"),
        ("ssl_options.password = secret", "the key must not be encrypted"),
        ("ssl_options.versions.1 = tlsv1.1", "versions are tlsv1.3 and tlsv1.2, not tlsv1.1"),
        ("listeners.ssl = 5671", "write listeners.ssl.NAME = [HOST:]PORT, or listeners.ssl = none"),
        ("cluster_formation.peer_discovery_backend = x", "Warren is one node"),
        ("auth_mechanisms.1 = GSSAPI", "mechanisms are PLAIN and AMQPLAIN and ANONYMOUS and EXTERNAL, not GSSAPI"),
        ("loopback_users = guest", "write loopback_users.NAME = true, or loopback_users = none"),
    ],
)
def test_what_is_not_known_or_not_done_is_passed_over_with_its_line(line: str, why: str) -> None:
    choices, warnings = read(f"\n{line}\nheartbeat = 1")
    assert warnings == [f"r.conf:2: {line.partition(' ')[0]} is ignored: {why}"]
    assert choices == OptionValues(heartbeat=1, loopback_users=("guest",))


def test_there_may_be_many_listeners() -> None:
    lines = ("tcp.1 = 127.0.0.1:5672", "tcp.2 = ::1:5673", "ssl.1 = 5671", "ssl.2 = 10.0.0.1:5681")
    choices, warnings = read("\n".join(f"listeners.{line}" for line in lines))
    assert (choices["host"], choices["port"], warnings) == ("127.0.0.1", 5672, [])
    assert choices["tcp_listeners"] == (("::1", 5673),)
    assert choices["ssl_listeners"] == (("", 5671), ("10.0.0.1", 5681))
    assert read("listeners.tcp = none\nlisteners.ssl = none") == (
        OptionValues(plain_tcp=False, loopback_users=("guest",)),
        [],
    )


def test_tls_has_the_keys_of_rabbitmq() -> None:
    lines = ("cacertfile = /ca", "certfile = /cert", "keyfile = /key", "verify = verify_peer", "versions.1 = tlsv1.3")
    for family, option in (("ssl_options", "ssl"), ("management.ssl", "management_ssl")):
        choices, warnings = read("\n".join(f"{family}.{line}" for line in (*lines, "fail_if_no_peer_cert = true")))
        named = {f"{option}_cacertfile": "/ca", f"{option}_certfile": "/cert", f"{option}_keyfile": "/key"}
        others = {f"{option}_verify": "verify_peer", f"{option}_versions": ("tlsv1.3",)}
        expected = {**named, **others, f"{option}_fail_if_no_peer_cert": True, "loopback_users": ("guest",)}
        assert (choices, warnings) == (OptionValues(**expected), [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("heartbeat = soon", "r.conf:1: heartbeat: 'soon' is no number from 0 to 65535"),
        ("disk_free_limit.absolute = 1XB", "r.conf:1: disk_free_limit.absolute: '1XB' is no size"),
        ("listeners.tcp.default = x:y", "r.conf:1: listeners.tcp.default: 'y' is no number from 0 to 65535"),
        ("default_user =", "r.conf:1: default_user: it is empty"),
        ("default_permissions.read = (", "r.conf:1: default_permissions.read: "),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_line(line: str, message: str) -> None:
    with pytest.raises(Misuse) as refused:
        read(line)
    assert refused.value.what.startswith(message)
    assert refused.value.hint
