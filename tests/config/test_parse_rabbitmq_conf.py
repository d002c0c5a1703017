"""rabbitmq.conf: lines, quotes, comments, directories of files; and what is no line."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.parse import FILE_BYTES_MAX, parse, read_lines
from warren.testing.memory_files import MemoryFiles

TEXT = """\
# a comment, and an empty line

listeners.tcp.default = 5672
  heartbeat=30   # seconds
default_pass = 'with # and spaces '   # quoted
default_user = 'o
empty =
with_equals = a = b
"""


def files(**texts: bytes) -> MemoryFiles:
    disk = MemoryFiles()
    disk.make_directories("/etc/conf.d")
    for name, text in texts.items():
        file = disk.create(f"/etc/conf.d/{name.replace('_', '.')}")
        file.write_at(0, [text])
        file.close()
    return disk


def test_lines_are_keys_and_values_with_their_numbers() -> None:
    found = {line.key: (line.number, line.value) for line in parse(TEXT.replace("= 'o\n", "= ann\n"), "r.conf")}
    assert found == {
        "listeners.tcp.default": (3, "5672"),
        "heartbeat": (4, "30"),
        "default_pass": (5, "with # and spaces "),
        "default_user": (6, "ann"),
        "empty": (7, ""),
        "with_equals": (8, "a = b"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT, "r.conf:6: a quote is left open"),
        ("a = 'b' c", "r.conf:1: a quote is left open"),
        ("[{rabbit, []}].", "r.conf:1: '[{rabbit, []}].' is no setting"),
        ("\n\nheartbeat 60", "r.conf:3: 'heartbeat 60' is no setting"),
        ("= 5", "r.conf:1: '= 5' is no setting"),
    ],
)
def test_what_is_no_setting_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Misuse) as refused:
        list(parse(text, "r.conf"))
    assert refused.value.what == message
    assert refused.value.hint


def test_a_directory_is_read_in_the_order_of_names() -> None:
    disk = files(b_conf=b"heartbeat = 2", a_conf=b"heartbeat = 1\n", notes_txt=b"no = file")
    lines = read_lines(disk, "/etc/conf.d")
    assert [(line.where, line.value) for line in lines] == [
        ("/etc/conf.d/a.conf:1", "1"),
        ("/etc/conf.d/b.conf:1", "2"),
    ]
    assert len(read_lines(disk, "/etc/conf.d/b.conf")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"\xff", "is not UTF-8 at byte 0"), (b"#" * (FILE_BYTES_MAX + 1), f"has more than {FILE_BYTES_MAX} bytes")],
)
def test_another_kind_of_file_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        read_lines(files(a_conf=text), "/etc/conf.d/a.conf")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(Misuse, match="there is no configuration at /etc/other"):
        read_lines(files(), "/etc/other")
