"""The options of `warren serve`: one table, read from three places.

    command line     --rotate-bytes 64MiB          ─┐
    environment      WARREN_ROTATE_BYTES=64MiB      ├──▶ OptionValues ──▶ configuration.configuration_of
    rabbitmq.conf    rotate_bytes = 64MiB          ─┘

`GROUPS` is the table: a row has the name of an option, its parser, its default, the settings field that it fills and
its help text. Flag, variable and key follow from the name; a row lists RabbitMQ's own variables and keys where there
are some. The flags of `warren serve`, the readers below, docs/configuration.md and the tests come from this table.
`NOT_OPTIONS` names every field of a settings class that has no option, with the reason.

A value is parsed where it is read, so an error names its flag, its variable, or its file and line. Unknown keys and
unknown RABBITMQ_ variables are warnings. Two lines are refused because ignoring them would make a broker less safe: a
value that does not parse, and plain TCP that is switched off.

This module imports no settings class: `warren --help` stays quick. The tests compare `default` with the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fsdecode
from typing import Any

from warren.base.errors import Misuse
from warren.config.parse import (
    ConfLine,
    Parser,
    listener,
    log_format,
    log_level,
    milliseconds,
    name,
    name_or_none,
    names,
    names_of,
    one_of,
    path,
    pattern,
    port,
    ratio,
    seconds,
    share,
    size_bytes,
    size_from,
    text,
    truth,
    whole,
)
from warren.files.protocol import join

MECHANISMS = ("PLAIN", "AMQPLAIN", "ANONYMOUS")
PASSWORD_HASHINGS = ("scrypt", "sha256")
REFLECTION_MODES = ("notify", "push", "push-threaded", "watch", "spark", "off")
COUNT_MAX = 1 << 31


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    parse: Parser
    default: str  # as a user writes it; empty: none
    fills: str  # fields of `Configuration`, separated by spaces; empty: `configuration` computes something from it
    help: str
    keys: tuple[str, ...] | None = None  # of rabbitmq.conf; None: its name
    variables: tuple[str, ...] = ()  # of RabbitMQ, read after WARREN_<NAME>
    has_flag: bool = True
    has_variable: bool = True
    is_switch: bool = False  # a flag without a value
    is_secret: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.fills.split())

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def all_variables(self) -> tuple[str, ...]:
        own = (f"WARREN_{self.name.upper()}",) if self.has_variable else ()
        return own + self.variables

    @property
    def all_keys(self) -> tuple[str, ...]:
        return (self.name,) if self.keys is None else self.keys


@dataclass(frozen=True, slots=True)
class OptionGroup:
    title: str
    settings: str  # the class whose fields they fill; empty: none
    options: tuple[Option, ...]


# -- the table --------------------------------------------------------------------------------------------------------

# fmt: off
_DATA = OptionGroup("Data", "CatalogSettings", (
    Option("data_dir", path, "$XDG_DATA_HOME/warren, else ~/.local/share/warren", "",
           "Directory of all data; created with mode 0700 if it is missing.", keys=()),
    Option("store_dir", path, "data_dir", "", "Directory of log and stores.", keys=(), has_variable=False),
    Option("no_data_dir", truth, "false", "",
           "There is no data directory: --store-dir is required.", keys=(), has_variable=False, is_switch=True),
    Option("connect", name, "", "places.catalog.connect",
           "SQL database system of the catalog: sqlite:////PATH or postgresql://USER@HOST/NAME. Empty: SQLite in the "
           "directory.", keys=(), is_secret=True),
    Option("catalog", name, "warren", "places.catalog.catalog",
           "Name of the SQL database of the catalog, or a URL as for connect.", keys=(), is_secret=True),
    Option("force", truth, "false", "places.catalog.is_forced",
           "Rebuild the SQL catalog from the log where a start is refused: it belongs to another log, or rows are "
           "lost.", keys=(), has_variable=False, is_switch=True),
))
_CONFIG = OptionGroup("Configuration and event log", "", (
    Option("config", path, "", "",
           "rabbitmq.conf, or a directory whose *.conf are read in the order of their names.",
           keys=(), variables=("RABBITMQ_CONFIG_FILE",)),
    Option("config_files", path, "", "",
           "Directory of further *.conf, read after config.", keys=(), variables=("RABBITMQ_CONFIG_FILES",)),
    Option("log_level", log_level, "info", "log_to.level",
           "Least level of events that are logged.", keys=("log.console.level", "log.file.level", "log.default.level")),
    Option("log_file", text, "", "log_to.path",
           "File for events; - is standard output, empty standard error. A file that was moved is created again, at "
           "the next event or at SIGHUP.", keys=(), variables=("RABBITMQ_LOGS",)),
    Option("log_format", log_format, "text", "log_to.format",
           "An event is a line of text, or a JSON object.", keys=("log.console.formatter", "log.file.formatter")),
    Option("log_connection_level", log_level, "", "log_to.connection_level",
           "Least level of events of connections: accepted, authenticated, closed, refused logins. Empty: log_level.",
           keys=("log.connection.level",)),
    Option("log_channel_level", log_level, "", "log_to.channel_level",
           "The same for errors of channels.", keys=("log.channel.level",)),
    Option("log_queue_level", log_level, "", "log_to.queue_level",
           "The same for queues, exchanges, bindings and consumers, declared and deleted: events of level debug.",
           keys=("log.queue.level",)),
    Option("pid_file", path, "", "pid_file",
           "Holds the process id while the broker runs.", keys=(), variables=("RABBITMQ_PID_FILE",)),
))
_FIRST_USER = OptionGroup("First user", "", (
    Option("default_user", name, "guest", "first_user.name",
           "User created at the first start, while there is no user at all.", variables=("RABBITMQ_DEFAULT_USER",)),
    Option("default_pass", name, "guest", "first_user.password",
           "Password of the first user. No flag: other users of the machine see a command line.",
           variables=("RABBITMQ_DEFAULT_PASS",), has_flag=False, is_secret=True),
    Option("default_vhost", name, "/", "first_user.vhost",
           "Vhost created with the first user.", variables=("RABBITMQ_DEFAULT_VHOST",)),
    Option("default_user_tags", names, "administrator", "first_user.tags", "Tags of the first user.", keys=()),
    Option("default_permissions_configure", pattern, ".*", "first_user.configure",
           "Names that the first user may configure.", keys=("default_permissions.configure",)),
    Option("default_permissions_write", pattern, ".*", "first_user.write",
           "Names that the first user may write to.", keys=("default_permissions.write",)),
    Option("default_permissions_read", pattern, ".*", "first_user.read",
           "Names that the first user may read from.", keys=("default_permissions.read",)),
))
_DEFINITIONS = OptionGroup("Definitions", "", (
    Option("load_definitions", path, "", "load_definitions",
           "Definitions to import at every start: a JSON file, or a directory whose *.json are imported together. The "
           "start fails if they are refused. No first user is created then.",
           keys=("load_definitions", "definitions.local.path")),
    Option("definitions_import_backend", one_of("local_filesystem"), "local_filesystem", "",
           "Where load_definitions are read from.", keys=("definitions.import_backend",), has_flag=False,
           has_variable=False),
))
_SERVER = OptionGroup("AMQP server", "ServerSettings", (
    Option("host", name, "127.0.0.1", "server.host",
           "Address to listen on; 0.0.0.0 or :: for all addresses of the machine.",
           keys=(), variables=("RABBITMQ_NODE_IP_ADDRESS",)),
    Option("port", port, "5672", "server.port",
           "Port for AMQP; 0 picks a free one.", keys=(), variables=("RABBITMQ_NODE_PORT",)),
    Option("product", name, "Warren", "server.product",
           "Product name in server-properties. Celery (kombu) uses more features if it is RabbitMQ.",
           keys=("product.name",)),
    Option("product_version", name, "", "server.product_version",
           "Version in server-properties. Empty: 3.10.8, the version of RabbitMQ whose answers Warren gives.",
           keys=("product.version",)),
    Option("channel_max", whole(1, 65_535), "2047", "server.channel_max", "Channels per connection."),
    Option("frame_max", whole(4096, 1 << 31), "131072", "server.frame_max", "Largest frame offered, in bytes."),
    Option("initial_frame_max", whole(4096, 1 << 31), "8192", "server.initial_frame_max",
           "Largest frame before connection.tune-ok, in bytes."),
    Option("heartbeat", whole(0, 65_535), "60", "server.heartbeat_seconds",
           "Heartbeat offered, in seconds; a client may ask for less, or for none."),
    Option("handshake_timeout", milliseconds, "10000", "server.handshake_seconds",
           "Time limit for the handshake, from connect to connection.open, in milliseconds. Time the broker itself "
           "takes (hashing, the delay of a refused login) does not count."),
    Option("half_open_max", whole(1, COUNT_MAX), "1024", "server.half_open_max",
           "Connections in the handshake. One more resets the oldest of the address that has most."),
    Option("max_message_size", size_bytes, "128MiB", "server.message_bytes_max message_stores.max_message_size",
           "Largest message; a larger one is refused."),
    Option("auth_mechanisms", names_of(*MECHANISMS), "PLAIN,AMQPLAIN", "server.mechanisms",
           "SASL mechanisms offered; ANONYMOUS only if anonymous_login_user is set.", keys=()),
    Option("anonymous_login_user", name_or_none, "none", "server.anonymous_login_user",
           "User of clients that log in by ANONYMOUS, without a password; none: that is not offered."),
    Option("loopback_users", names, "guest", "server.loopback_users",
           "Users who may log in from this machine only; none: no such users.", keys=()),
    Option("login_delay_seconds", seconds, "1", "server.login_delay_seconds",
           "Delay of the answer to a refused login. Each further one from the same address within a minute doubles "
           "it, up to 3 s; after ten of them one login a second is checked, except for users who are known already."),
    Option("password_hashing", one_of(*PASSWORD_HASHINGS), "scrypt", "server.password_hashing",
           "How new passwords are hashed: scrypt, or sha256, which RabbitMQ can import."),
    Option("password_rehash", truth, "false", "server.password_rehash",
           "At a login, replace a password hash of another kind by one of password_hashing. Otherwise imported hashes "
           "are kept."),
    Option("unsafe_bytes_max", size_from(1), "32MiB", "server.unsafe_bytes_max",
           "Published bytes that are not durable yet. Above it the broker does not read from publishers."),
    Option("unsent_bytes_max", size_from(1), "1MiB", "server.unsent_bytes_max",
           "Send-buffer limit per connection. Above it, deliveries to that connection pause."),
    Option("consumer_timeout", whole(0, 1 << 40), "1800000", "server.consumer_timeout_ms",
           "Time limit for the acknowledgement of a delivery, in milliseconds; then the channel is closed, and its "
           "messages are ready again. 0: none. A queue may have its own, x-consumer-timeout."),
    Option("disk_free_limit_absolute", size_bytes, "50MB", "server.disk_free_min_bytes",
           "Free disk space below which publishers are blocked; consumers continue.",
           keys=("disk_free_limit.absolute",)),
    Option("disk_free_limit_relative", share, "", "",
           "The same as a share of the memory of the machine, as in RabbitMQ. The absolute limit takes precedence.",
           keys=("disk_free_limit.relative",)),
    Option("drain_seconds", seconds, "10", "server.drain_seconds",
           "Time that clients have to close their connections at a stop."),
))
_MANAGEMENT = OptionGroup("Management API and metrics", "ManagementSettings", (
    Option("management_host", name, "", "management_host",
           "Address of the HTTP API and of the metrics. Empty: host.",
           keys=("management.tcp.ip", "management.listener.ip")),
    Option("management_port", port, "15672", "management_port",
           "Port of the HTTP API; 0 picks a free one.", keys=("management.tcp.port", "management.listener.port")),
    Option("prometheus_port", port, "15692", "prometheus_port",
           "Port of the metrics; 0 picks a free one.", keys=("prometheus.tcp.port",)),
    Option("management_header_bytes_max", size_from(1024), "16KiB", "management.header_bytes_max",
           "Largest head of a request."),
    Option("management_header_seconds", seconds, "10", "management.header_seconds",
           "Time limit for the head of a request, from connect or its first byte; then the connection is closed."),
    Option("management_body_bytes_max", size_from(1), "1MiB", "management.body_bytes_max",
           "Largest body of a request, counted while it arrives; a larger one is answered 413."),
    Option("management_body_seconds", seconds, "10", "management.body_seconds",
           "Time limit for a body; a later one is answered 408."),
    Option("management_json_depth_max", whole(1, 1000), "32", "management.json_depth_max", "Deepest nesting of JSON."),
    Option("management_connections_max", whole(1, COUNT_MAX), "256", "management.connections_max",
           "Connections to each of the three sockets; further requests are answered 503."),
    Option("management_reader_seconds", seconds, "30", "management.reader_seconds",
           "A client that reads nothing of its response for this long is disconnected."),
    Option("management_idle_seconds", whole(1, COUNT_MAX), "30", "management.idle_seconds",
           "An idle connection is closed after this many seconds."),
    Option("management_threads", whole(1, 1024), "4", "management.threads",
           "Threads that compute responses, so that the event loop of the broker never waits for them."),
    Option("management_stop_seconds", whole(0, COUNT_MAX), "5", "management.stop_seconds",
           "Time for running requests at a stop, in seconds."),
))
_QUEUES = OptionGroup("Queues and memory", "QueueSettings", (
    Option("vm_memory_high_watermark_absolute", size_bytes, "", "",
           "Memory of the whole process. Messages of all queues get half of what remains after 220 MiB, at least 16 "
           "MiB; more is paged out.", keys=("vm_memory_high_watermark.absolute",)),
    Option("vm_memory_high_watermark_relative", share, "0.6", "",
           "The same as a share of the memory of the machine, or of its container. The absolute one takes precedence.",
           keys=("vm_memory_high_watermark.relative",)),
    Option("memory_watermark_bytes", size_from(1), "80MiB", "queues.memory_watermark_bytes",
           "Memory for messages of all queues; above it messages are paged out. Takes precedence over the watermark "
           "of the process."),
    Option("queue_backing", one_of("variable", "memory", "sql"), "variable", "queues.backing",
           "Backing queue of a new queue without x-backing: variable (memory and log), memory (lost at a stop), sql "
           "(a table in sql_queues/queues.sqlite). Programs may add kinds with backing_kinds."),
    Option("queue_memory_tick_seconds", seconds, "1", "queues.memory_tick_seconds",
           "Interval at which memory is shared among queues while they are below the watermark."),
    Option("queue_cleaning_seconds", seconds, "5", "queues.cleaning_seconds",
           "Interval of the search for files of the message stream with few live messages."),
    Option("queue_settle_ms", whole(0, COUNT_MAX), "50", "queues.settle_ms",
           "Longest time until an acknowledgement is durable, in milliseconds."),
    Option("queue_restarts_max", whole(0, COUNT_MAX), "5", "queues.restarts_max",
           "A queue that fails more often than this within queue_restarts_seconds stays down."),
    Option("queue_restarts_seconds", seconds, "10", "queues.restarts_seconds", "Period for queue_restarts_max."),
))
_VARIABLE_QUEUES = OptionGroup("Paging of a queue", "VariableQueueSettings", (
    Option("queue_index_embed_msgs_below", size_bytes, "4096", "variable_queues.queue_index_embed_msgs_below",
           "Contents below this size are stored in the queue index, others in the message store."),
    Option("queue_run_messages_max", whole(1, 16_384), "16384", "variable_queues.run_messages_max",
           "Most messages of one run; messages published together stay together."),
    Option("queue_run_bytes_max", size_from(1, 512 << 10), "512KiB", "variable_queues.run_bytes_max",
           "Most content of one run, unless a single message is larger."),
    Option("queue_page_messages_max", whole(1, COUNT_MAX), "16384", "variable_queues.page_messages_max",
           "Most messages moved by one step of paging."),
    Option("queue_page_bytes_max", size_from(1), "8MiB", "variable_queues.page_bytes_max",
           "About how much content one step of paging moves."),
    Option("queue_beta_messages_max", whole(0, COUNT_MAX), "65536", "variable_queues.beta_messages_max",
           "Messages whose position may stay in memory when their content is paged out (beta)."),
    Option("queue_delta_read_messages", whole(1, COUNT_MAX), "16384", "variable_queues.delta_read_messages",
           "Positions read back from disk at once (delta)."),
    Option("queue_read_ahead_bytes_max", size_from(1), "64KiB", "variable_queues.read_ahead_bytes_max",
           "Content read together when a message on disk is fetched."),
    Option("queue_counters_every_runs", whole(1, COUNT_MAX), "256", "variable_queues.counters_every_runs",
           "Runs between two writes of a queue's counters: the most runs of a queue that a start reads."),
    Option("queue_rate_half_life_ms", whole(1, COUNT_MAX), "10000", "variable_queues.rate_half_life_ms",
           "Half-life of the rates of a queue, in milliseconds."),
))
_MESSAGE_STORES = OptionGroup("Message stores", "MessageStoreSettings", (
    Option("message_store_read_cache_bytes", size_from(1), "4MiB", "message_stores.read_cache_bytes",
           "Read cache of each store."),
    Option("message_store_transient_file_bytes", size_from(1 << 16), "64MiB", "message_stores.transient_file_bytes",
           "Size at which a file of the transient store is followed by the next."),
    Option("message_store_gc_seconds", seconds, "5", "message_stores.gc_seconds", "Interval of garbage collection."),
    Option("message_store_gc_census_seconds", seconds, "3600", "message_stores.gc_census_seconds",
           "Interval at which the live bytes of every file are counted again."),
))
_LOG = OptionGroup("Log", "LogSettings", (
    Option("container_size", size_from(0, 256 << 20), "1MiB", "log.container_bytes",
           "Unit of allocation inside a log file; at least 512 KiB, rounded up to whole sectors. Fixed when the "
           "directory is created."),
    Option("initial_containers", whole(1, 1024), "2", "log.initial_containers",
           "Containers of a new log file; at least 2. Fixed when the directory is created."),
    Option("max_write_buffers", whole(1, 1 << 16), "10", "log.max_write_buffers",
           "Blocks gathered before the log is flushed (warren_log_flushes_total counts)."),
    Option("block_bytes", size_from(4096, 8 << 20), "1MiB", "log.block_bytes",
           "About how large a block becomes before a session starts the next."),
    Option("session_bytes_max", size_from(1 << 20, 1 << 30), "256MiB", "log.session_bytes_max",
           "Largest session. Together with rotate_bytes at most 2 GiB."),
    Option("rotate_bytes", size_from(1 << 20, 1 << 30), "256MiB", "log.rotate_bytes",
           "A log file of this size is rotated at the next epoch. 64 MiB in a program."),
    Option("rotation_reply_seconds_max", seconds, "30", "log.rotation_reply_seconds_max",
           "Longest time that a rotation waits for open sessions."),
    Option("page_cache_bytes", size_bytes, "16MiB", "log.page_cache_bytes",
           "Part of a file being written that may stay in the page cache; 0: all of it."),
    Option("retention_seconds", seconds, "86400", "log.retention_seconds", "Age limit of history; 0: none is kept."),
    Option("retention_bytes", size_bytes, "1GiB", "log.retention_bytes",
           "Size limit of history, counted by the bytes in use of each file; 0: none is kept. History yields to a "
           "disk that is short of space."),
    Option("quarantine_bytes_max", size_bytes, "1GiB", "log.quarantine_bytes_max",
           "Size of quarantine/ above which an alarm is raised. Nothing is deleted."),
    Option("pin_seconds", seconds, "300", "log.pin_seconds", "A pin that is not renewed for this long expires."),
    Option("compaction_garbage_ratio", ratio, "0.5", "log.compaction_garbage_ratio",
           "Share of superseded bytes at which compaction starts; 0: never. Used with reflection off only."),
    Option("compaction_bytes_min", size_bytes, "64MiB", "log.compaction_bytes_min",
           "Uncompacted bytes below which compaction does not start. Used with reflection off only."),
    Option("compaction_poll_seconds", seconds, "1", "log.compaction_poll_seconds",
           "Interval at which ctrl/start_compaction is polled."),
    Option("merge_memory_bytes", size_from(1 << 20), "512MiB", "log.merge_memory_bytes",
           "Memory of a merge; above it the merge spills to disk."),
    Option("scan_threads", whole(1, 64), "2", "log.scan_threads", "Threads of a scan or a merge."),
    Option("recycle_files", truth, "false", "log.recycle_files", "Reuse freed log files instead of creating new ones."),
    Option("use_worker_process", truth, "true", "log.use_worker_process",
           "Run compaction and snapshots in a niced process of their own."),
))
_REFLECTION = OptionGroup("Reflection", "ReflectionSettings", (
    Option("reflection", one_of(*REFLECTION_MODES), "notify", "reflection.reflection",
           "How entries reach the safe snapshot store: notify (a thread reads new blocks of the log), push (the "
           "leader of a commit adds them, from memory), push-threaded (the same through a queue), watch (a process of "
           "its own watches the log and owns the store), spark (only at `warren pipeline sync`), off. With spark or "
           "off the log only grows."),
    Option("reflection_lag_seconds", seconds, "0.1", "reflection.lag_seconds",
           "Wait for more durable entries before a round: entries removed meanwhile are never reflected."),
    Option("reflection_quiet_seconds", seconds, "5", "reflection.quiet_seconds",
           "Longest wait before a round while traffic is low (reflection_quiet_bytes): a round takes some "
           "milliseconds, and a few long rounds delay fewer messages than many short ones. 0 in a program."),
    Option("reflection_quiet_bytes", size_bytes, "2MiB", "reflection.quiet_bytes",
           "Traffic is low below this many bytes since the last round."),
    Option("reflection_step_bytes", size_from(1 << 16), "64MiB", "reflection.step_bytes",
           "Most of the log reflected at once."),
    Option("reflection_bulk_bytes", size_bytes, "4MiB", "reflection.bulk_bytes",
           "A backlog of this size becomes a table made by a process of its own; a push takes at most this much and "
           "leaves the rest to that process. 0: never."),
    Option("reflection_chunk_bytes", size_from(1 << 12), "4MiB", "reflection.chunk_bytes",
           "Largest write batch of the store; no other Python thread runs while it is applied."),
    Option("reflection_buffer", one_of("memory", "rocksdb"), "memory", "reflection.buffer",
           "Version buffer: memory writes nothing while reflection keeps up; rocksdb is a column family in a RocksDB "
           "of its own (buffer/) with bounded memory at any backlog. After a full disk rocksdb continues only after a "
           "restart; the log has everything until then."),
    Option("reflection_buffer_bytes", size_from(1 << 16), "32MiB", "reflection.buffer_bytes",
           "Memory of the version buffer; above it entries wait in files."),
    Option("reflection_overlay_bytes", size_bytes, "16MiB", "reflection.overlay_bytes",
           "Reads of the latest state overlay the store with log entries from memory. Above this size the store "
           "applies what it can first. While reflection is off, paused or failed, memory grows with what is written."),
    Option("reflection_flush_bytes", size_from(1), "64MiB", "reflection.flush_bytes",
           "The store is flushed, and the log behind it released, after this much was applied."),
    Option("reflection_flush_seconds", seconds, "10", "reflection.flush_seconds",
           "The same by time, if anything was applied."),
    Option("reflection_retry_seconds", seconds, "1", "reflection.retry_seconds",
           "Interval of retries of a failed store, and delay before a puller that ended is restarted."),
    Option("reflection_poll_seconds", seconds, "0", "reflection.poll_seconds",
           "In mode watch: poll the log at this interval if inotify does not work (some network disks); 0: inotify."),
))
_STORE = OptionGroup("Safe snapshot store", "SnapshotStoreSettings", (
    Option("store_write_buffer_bytes", size_from(1 << 16), "8MiB", "store.write_buffer_bytes",
           "Size of a memtable of RocksDB; a second one fills while it is flushed."),
    Option("store_block_cache_bytes", size_from(1 << 16), "32MiB", "store.block_cache_bytes",
           "Block cache of RocksDB, with index and filter blocks."),
    Option("store_background_jobs", whole(1, 64), "2", "store.background_jobs",
           "Threads of RocksDB that flush and compact."),
    Option("store_compression", one_of("lz4", "zstd", "none"), "lz4", "store.compression",
           "Compression of the store's files. Tables made from a backlog are lz4 until they are compacted."),
    Option("store_read_rows", whole(1, 1 << 20), "512", "store.read_rows", "Rows that a range reads at once."),
    Option("store_batch_rows", whole(1, 1 << 20), "4096", "store.batch_rows", "Rows of one of `batches`."),
))
# fmt: on

GROUPS = (
    _DATA,
    _CONFIG,
    _FIRST_USER,
    _DEFINITIONS,
    _SERVER,
    _MANAGEMENT,
    _QUEUES,
    _VARIABLE_QUEUES,
    _MESSAGE_STORES,
    _LOG,
    _REFLECTION,
    _STORE,
)
OPTIONS: dict[str, Option] = {option.name: option for group in GROUPS for option in group.options}

# Fields of settings classes without an option: what they mean to a program, and why the broker needs no option.
NOT_OPTIONS: dict[str, tuple[str, str]] = {
    "log.channel_count": ("Series of log files written in parallel for key-value sessions.", "The broker writes one."),
    "log.gathered_blocks_max": (
        "Blocks gathered before writers wait for the disk; never below max_write_buffers.",
        "65536: the event loop never waits for the disk; it stops reading from publishers (unsafe_bytes_max).",
    ),
    "log.ballast_bytes": (
        "Disk reserve (file `ballast`) for acknowledgements and flushes on a full disk; 0: none.",
        "16 MiB and two containers.",
    ),
    "log.ballast_publish_bytes": (
        "Further disk reserve in the same file for published messages that are not durable yet.",
        "The value of unsafe_bytes_max.",
    ),
    "log.free_bytes_min": (
        "Free disk space below which history is purged, oldest first, until a quarter more is free; 0: only while "
        "writers wait for space or the disk reserve is in use.",
        "The value of disk_free_limit, and a quarter more: history yields before publishers are blocked.",
    ),
    "log.keeps_snapshot": (
        "Make start-up snapshots.",
        "False: the safe snapshot store takes their place, as in `warren.open`.",
    ),
    "log.snapshot_at_stop": ("Write the start-up snapshot at a clean stop.", "There is no start-up snapshot."),
    "queues.put_count_max": ("Most messages of one session of `put_many`.", "The broker has no `put_many`."),
    "queues.put_bytes_max": (
        "Most bytes of one session of `put_many`, unless one message is larger.",
        "The broker has no `put_many`.",
    ),
}

# -- values -----------------------------------------------------------------------------------------------------------


class OptionValues(dict[str, Any]):
    """Parsed values by the name of the option. An option that its source does not set is absent."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - OPTIONS.keys():
            raise TypeError(f"no such options: {', '.join(sorted(unknown))}")
        super().__init__({option: value for option, value in values.items() if value is not None})

    def __repr__(self) -> str:
        shown = (f"{option}={'…' if OPTIONS[option].is_secret else repr(value)}" for option, value in self.items())
        return f"OptionValues({', '.join(shown)})"


def merged(*sources: OptionValues) -> OptionValues:
    """Of each option the value of the first source that sets it."""
    values: dict[str, Any] = {}
    for source in reversed(sources):
        values |= source
    return OptionValues(**values)


def _parsed(option: Option, value: str, where: str) -> Any:
    return _parse_at(option.parse, value, where)


def _parse_at(parse: Parser, value: str, where: str) -> Any:
    try:
        return parse(value)
    except Misuse as error:
        raise Misuse(f"{where}: {error.what}", error.hint) from error


# -- the command line -------------------------------------------------------------------------------------------------


def read_flags(flags: Mapping[str, str | bool | None]) -> OptionValues:
    """Flags by the name of their option; None: not given."""
    values: dict[str, Any] = {}
    for option_name, value in flags.items():
        option = OPTIONS[option_name]
        values[option_name] = _parsed(option, value, option.flag) if isinstance(value, str) else value
    return OptionValues(**values)


# -- the environment --------------------------------------------------------------------------------------------------

VARIABLES: dict[str, Option] = {
    variable: option for option in OPTIONS.values() for variable in reversed(option.all_variables)
}  # RabbitMQ's before ours: ours take precedence
_LOG_LEVELS = "RABBITMQ_LOG"  # `debug`, or categories with levels: `connection.debug,+color`
_RABBITMQ = "RABBITMQ_"

IGNORED_VARIABLES: dict[str, str] = {
    "RABBITMQ_ERLANG_COOKIE": "there is no Erlang here",
    "RABBITMQ_NODENAME": "data belongs to its directory, whatever the machine is called",
    "RABBITMQ_MNESIA_BASE": "set the data directory with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_MNESIA_DIR": "set the data directory with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_ENABLED_PLUGINS": "management and Prometheus are always enabled, other plugins do not exist",
    "RABBITMQ_ENABLED_PLUGINS_FILE": "management and Prometheus are always enabled, other plugins do not exist",
    "RABBITMQ_FEATURE_FLAGS": "all features are enabled",
}


def read_environment(environment: Mapping[str, str]) -> tuple[OptionValues, list[str]]:
    """Values of the environment, and warnings. An empty variable counts as not set."""
    given = {variable: value for variable, value in environment.items() if value}
    values = {
        option.name: _parsed(option, given[variable], variable)
        for variable, option in VARIABLES.items()
        if variable in given
    }
    if _LOG_LEVELS in given:
        values = _levels(given[_LOG_LEVELS]) | values
    known = {*VARIABLES, _LOG_LEVELS}
    others = sorted(variable for variable in given if variable.startswith(_RABBITMQ) and variable not in known)
    warnings = [f"{each} is ignored: {IGNORED_VARIABLES.get(each, 'unknown variable')}" for each in others]
    return OptionValues(**values), warnings


def _levels(value: str) -> dict[str, str]:
    """The general level is a part without a category. Categories that do not exist here, and colors, are ignored."""
    levels: dict[str, str] = {}
    for part in value.split(","):
        category, _, level = part.rpartition(".")
        option = f"log_{category}_level" if category else "log_level"
        if part and part[0] not in "+-" and option in OPTIONS:
            levels.setdefault(option, _parse_at(log_level, level, _LOG_LEVELS))
    return levels


# -- rabbitmq.conf ----------------------------------------------------------------------------------------------------

KEYS: dict[str, Option] = {key: option for option in OPTIONS.values() for key in option.all_keys}
# Families of keys that `ConfReader` reads itself, with the options that they fill.
KEY_FAMILIES: dict[str, tuple[str, ...]] = {
    "listeners.tcp.NAME": ("host", "port"),
    "loopback_users.NAME": ("loopback_users",),
    "auth_mechanisms.N": ("auth_mechanisms",),
    "default_user_tags.TAG": ("default_user_tags",),
    "log.file": ("log_file",),
    "log.dir": ("log_file",),
    "log.console": (),
}
IGNORED_KEYS: dict[str, str] = {
    "listeners.ssl": "TLS is not served by this version",
    "ssl_options": "TLS is not served by this version",
    "management.ssl": "TLS is not served by this version",
    "prometheus.ssl": "TLS is not served by this version",
    "prometheus.tcp.ip": "metrics are served at management.tcp.ip",
    "definitions.skip_if_unchanged": "an import that changes nothing writes nothing",
    "definitions.https": "definitions are read from files",
    "definitions.tls": "definitions are read from files",
    "management.load_definitions": "the key is load_definitions",
    "default_queue_type": "the type of a queue makes no difference here",
    "cluster_formation": "Warren is one node",
    "cluster_name": "Warren is one node",
    "cluster_partition_handling": "Warren is one node",
    "auth_backends": "users are those of the catalog",
    "log.file.rotation": "rotate with logrotate: a file that was moved is created again",
    "log.exchange": "events are not published",
    "log.syslog": "events go to standard error or a file",
    "log.mirroring": "there is no such category of events",
    "log.federation": "there is no such category of events",
    "log.upgrade": "there is no such category of events",
    "log.ra": "there is no such category of events",
}
_LOG_FILE, _LOG_DIR, _LOG_CONSOLE = "log.file", "log.dir", "log.console"
_LOG_NAME = "warren.log"


def read_keys(lines: Iterable[ConfLine]) -> tuple[OptionValues, list[str]]:
    """Values of the lines, and warnings."""
    reader = ConfReader()
    for line in lines:
        reader.add(line)
    return reader.values(), reader.warnings


class ConfReader:
    """Collects lines of rabbitmq.conf: `add` each, then `values` and `warnings`."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._values: dict[str, Any] = {}
        self._loopback: dict[str, bool] = dict.fromkeys(names(OPTIONS["loopback_users"].default), True)
        self._mechanisms: dict[str, str] = {}
        self._tags: list[str] = []
        self._listener = ""  # key of the listener that is served
        self._log: dict[str, str] = {}

    def add(self, line: ConfLine) -> None:
        key = line.key
        if key in KEYS:
            self._values[KEYS[key].name] = _conf_value(line, KEYS[key].parse)
        elif key.startswith("listeners.tcp"):
            self._add_listener(line)
        elif key.startswith("loopback_users"):
            self._add_loopback(line)
        elif key.startswith("auth_mechanisms."):
            self._add_mechanism(line)
        elif key.startswith("default_user_tags."):
            if _conf_value(line, truth):
                self._tags.append(key.partition(".")[2])
        elif key in (_LOG_FILE, _LOG_DIR, _LOG_CONSOLE):
            self._log[key] = line.value
        else:
            self._warn(line, next((why for known, why in IGNORED_KEYS.items() if _is_below(key, known)), "unknown key"))

    def values(self) -> OptionValues:
        values = dict(self._values)
        values["loopback_users"] = tuple(user for user, is_local in self._loopback.items() if is_local)
        if self._mechanisms:
            values["auth_mechanisms"] = tuple(dict.fromkeys(self._mechanisms[key] for key in sorted(self._mechanisms)))
        if self._tags:
            values["default_user_tags"] = tuple(dict.fromkeys(self._tags))
        return OptionValues(**values, log_file=self._log_path())

    def _add_listener(self, line: ConfLine) -> None:
        if line.value.lower() == "none":
            what = f"{line.where}: plain TCP is switched off, and this version serves nothing else"
            raise Misuse(what, "listen on this machine only: listeners.tcp.local = 127.0.0.1:5672")
        host, number = _conf_value(line, listener)
        if self._listener not in ("", line.key):
            self._warn(line, f"one listener is served, {self._listener}")
            return
        self._listener = line.key
        self._values |= {"port": number, "host": host}

    def _add_loopback(self, line: ConfLine) -> None:
        user = line.key.partition(".")[2]
        if user:
            self._loopback[user] = _conf_value(line, truth)
        elif line.value.lower() == "none":
            self._loopback = {}
        else:
            self._warn(line, "write loopback_users.NAME = true, or loopback_users = none")

    def _add_mechanism(self, line: ConfLine) -> None:
        if line.value in MECHANISMS:
            self._mechanisms[line.key] = line.value
        else:
            self._warn(line, f"mechanisms are {' and '.join(MECHANISMS)}, not {line.value[:40]}")

    def _log_path(self) -> str | None:
        file, directory = self._log.get(_LOG_FILE), self._log.get(_LOG_DIR)
        if file is None:
            return None
        if file.lower() == "false":
            return ""
        file = _LOG_NAME if file.lower() == "true" else file
        return join(directory, file) if directory and not file.startswith("/") else file

    def _warn(self, line: ConfLine, why: str) -> None:
        self.warnings.append(f"{line.where}: {line.key} is ignored: {why}")


def _is_below(key: str, family: str) -> bool:
    return key == family or key.startswith(f"{family}.")


def _conf_value(line: ConfLine, parse: Parser) -> Any:
    return _parse_at(parse, line.value, f"{line.where}: {line.key}")


# -- directories ------------------------------------------------------------------------------------------------------


def store_directory(data_dir: str | None, store_dir: str | None, no_data_dir: bool) -> str:
    """The directory of log and stores: `--store-dir`, else `--data-dir`. With `--no-data-dir` only the first."""
    if no_data_dir and data_dir is not None:
        raise Misuse("--data-dir and --no-data-dir contradict each other", "give one of them")
    if store_dir is not None:
        return directory_path(store_dir)
    if no_data_dir:
        raise Misuse("with --no-data-dir there is no place for the store", "name one with --store-dir")
    if data_dir is None:
        raise Misuse("no directory was given", "name one with --data-dir or --store-dir")
    return directory_path(data_dir)


def directory_path(path: str | PathLike[str]) -> str:
    """A directory named by a program, a flag or a variable, where no shell has expanded `~`. Empty is refused."""
    try:
        text = fsdecode(path)
    except TypeError as error:
        raise Misuse(f"a path is a string or a path object, not {type(path).__name__}") from error
    if not text:
        raise Misuse("the path of the directory is empty", "name a directory; the present one is '.'")
    from warren.files.local import expand_user

    expanded = expand_user(text)
    if expanded.startswith("~"):
        raise Misuse(f"{text}: there is no such home directory", f"for a directory of that name write ./{text}")
    return expanded
