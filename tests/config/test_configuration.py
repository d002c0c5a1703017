"""All sources together: command line, environment, file, defaults, in this order."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.configuration import OWN_BYTES, UNKNOWN_BYTES, Configuration, FirstUser, configuration_of
from warren.config.options import OptionValues
from warren.queues.settings import QueueSettings
from warren.server.settings import ServerSettings
from warren.testing.memory_files import MemoryFiles

CONF = "/etc/rabbitmq/rabbitmq.conf"


def built(
    conf: str = "", more: str = "", environment: dict[str, str] | None = None, **options: object
) -> Configuration:
    files = MemoryFiles()
    files.make_directories("/etc/rabbitmq/conf.d")
    for path, text in ((CONF, conf), ("/etc/rabbitmq/conf.d/10.conf", more)):
        file = files.create(path)
        file.write_at(0, [text.encode()])
        file.close()
    choices = OptionValues(**{"data_dir": "/data", "config": CONF, **options})
    return configuration_of(files, choices, environment or {})


def test_without_any_setting_defaults_hold() -> None:
    found = built()
    assert found.server == ServerSettings()
    assert found.queues == QueueSettings()
    assert found.first_user == FirstUser("guest", "guest", "/", ("administrator",), ".*", ".*", ".*")
    assert (found.management_port, found.prometheus_port) == (15672, 15692)
    assert found.places.directory == "/data"
    assert found.memory_limit_bytes == int(UNKNOWN_BYTES * 0.6)


def test_command_line_before_environment_before_file_before_default() -> None:
    environment = {"RABBITMQ_NODE_PORT": "2", "WARREN_PRODUCT": "environment"}
    conf = "listeners.tcp.default = 127.0.0.2:3\nproduct.name = file\nheartbeat = 3"
    server = built(conf, environment=environment, port=0).server
    effective = (server.port, server.product, server.heartbeat_seconds, server.host, server.frame_max)
    assert effective == (0, "environment", 3, "127.0.0.2", 131_072)


def test_files_of_the_directory_are_read_behind_the_file() -> None:
    for directory in ("/etc/rabbitmq/conf.d", "/etc/rabbitmq/conf.d/*.conf"):
        found = built("heartbeat = 1\nframe_max = 9000", "heartbeat = 2", {"RABBITMQ_CONFIG_FILES": directory})
        assert (found.server.heartbeat_seconds, found.server.frame_max) == (2, 9000)


def test_the_file_may_be_named_without_its_ending_but_is_not_erlang() -> None:
    found = built("heartbeat = 1", config="/etc/rabbitmq/rabbitmq")
    assert found.server.heartbeat_seconds == 1
    with pytest.raises(Misuse, match="is written in Erlang"):
        built(config="/etc/rabbitmq/rabbitmq.config")
    with pytest.raises(Misuse, match="there is no configuration at /etc/none"):
        built(config="/etc/none")


def test_a_watermark_is_for_the_process_and_messages_get_a_part_of_it() -> None:
    absolute = built("vm_memory_high_watermark.absolute = 2GiB")
    assert absolute.memory_limit_bytes == 2 << 30
    assert absolute.queues.memory_watermark_bytes == ((2 << 30) - OWN_BYTES) // 2
    relative = built("vm_memory_high_watermark.relative = 0.5")
    assert relative.memory_limit_bytes == UNKNOWN_BYTES // 2
    explicit = built("vm_memory_high_watermark.absolute = 2GiB\nmemory_watermark_bytes = 64MiB")
    assert (explicit.memory_limit_bytes, explicit.queues.memory_watermark_bytes) == (2 << 30, 64 << 20)


def test_room_on_the_disk_may_be_a_share_of_the_memory() -> None:
    assert built("disk_free_limit.absolute = 1GB").server.disk_free_min_bytes == 10**9
    assert built("disk_free_limit.relative = 1.5").server.disk_free_min_bytes == UNKNOWN_BYTES * 3 // 2


def test_the_largest_message_is_the_same_everywhere() -> None:
    found = built("max_message_size = 1MiB\nqueue_index_embed_msgs_below = 100")
    assert found.server.message_bytes_max == found.message_stores.max_message_size == 1 << 20
    assert found.variable_queues.queue_index_embed_msgs_below == 100


def test_warnings_of_all_sources_are_kept() -> None:
    found = built("no.such = 1", environment={"RABBITMQ_NODENAME": "x"})
    assert [warning.partition(" ")[0] for warning in found.warnings] == ["RABBITMQ_NODENAME", f"{CONF}:1:"]


def test_op_02_to_op_04_where_data_is() -> None:
    """OP-02, OP-03, OP-04, from the command line down to the configuration."""
    found = built(store_dir="/store", catalog="shop", connect="sqlite:////x.db")
    assert (found.places.directory, found.places.catalog.catalog) == ("/store", "shop")
    with pytest.raises(Misuse, match="--no-data-dir"):
        built(data_dir=None, no_data_dir=True)
    assert built(data_dir=None, environment={"WARREN_DATA_DIR": "/from"}).places.directory == "/from"
    only_store = built(data_dir=None, store_dir="/s", no_data_dir=True, environment={"WARREN_DATA_DIR": "/from"})
    assert only_store.places.directory == "/s"
