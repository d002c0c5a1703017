"""Every format has its page, and every page shows the bytes.

A format is a module named `format.py` or `<kind>_format.py`, or one that lays out bytes with a `struct.Struct` of its
own. Its page in docs/formats names the module (`records/format.py`) and has three sections: a drawing, worked bytes,
versions. So a change of bytes leads to the page, and the page leads to the code.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.markdown import sections
from tests.house.source_tree import DOCS, SRC, Module, modules_under, plant

SECTIONS = ("drawing", "worked bytes", "versions")
TOOLS = ("testing", "cli")
WIRE = ("amqp", "server")  # bytes between two machines, laid down by AMQP: nothing of it is read from our disk
SCRATCH = ("queues/subqueues.py",)  # the next start deletes it and reads none of it
NOT_A_FORMAT = "README.md"  # the index of the pages


def offences(src: Path, formats: Path) -> list[str]:
    modules = format_modules(src)
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(formats.glob("*.md"))}
    pages.pop(NOT_A_FORMAT, None)
    found = [f"{module}: no page in docs/formats names it" for module in modules if not _is_named(module, pages)]
    for name, page in pages.items():
        if not any(module in page for module in modules):
            found.append(f"docs/formats/{name} names no format module, such as records/format.py")
        titles = [section.title.lower() for section in sections(page)]
        found += [
            f"docs/formats/{name} has no section '{wanted}'"
            for wanted in SECTIONS
            if not any(title.startswith(wanted) for title in titles)
        ]
    return found


def format_modules(src: Path) -> list[str]:
    """Seen from the package's root: records/format.py. The tools beside the product write nothing that lasts."""
    modules = [m for m in modules_under(src) if m.room not in (*TOOLS, *WIRE) and m.place not in SCRATCH]
    return [m.place for m in modules if _is_named_so(m) or _lays_out_bytes(m)]


def _is_named_so(module: Module) -> bool:
    return f"_{module.place.rpartition('/')[2]}".endswith("_format.py")


def _lays_out_bytes(module: Module) -> bool:
    values = [node.value for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return any(isinstance(value, ast.Call) and ast.unparse(value.func).endswith("Struct") for value in values)


def _is_named(module: str, pages: dict[str, str]) -> bool:
    return any(module in page for page in pages.values())


def test_every_format_of_warren_has_its_page() -> None:
    assert not offences(SRC, DOCS / "formats")


GOOD_PAGE = "# Block\nSee `records/format.py`.\n## Drawing\n## Worked bytes\n## Versions\n"


@pytest.mark.parametrize(
    ("page", "offence"),
    [
        (GOOD_PAGE.replace("records", "catalog"), "records/format.py: no page in docs/formats names it"),
        (
            GOOD_PAGE.replace("records", "catalog"),
            "docs/formats/block.md names no format module, such as records/format.py",
        ),
        (GOOD_PAGE.replace("## Drawing\n", ""), "docs/formats/block.md has no section 'drawing'"),
        (GOOD_PAGE.replace("## Worked bytes", "worked bytes"), "docs/formats/block.md has no section 'worked bytes'"),
        (GOOD_PAGE.replace("## Versions", "```\n## Versions\n```"), "docs/formats/block.md has no section 'versions'"),
    ],
)
def test_a_format_without_its_page_is_found(tmp_path: Path, page: str, offence: str) -> None:
    plant(tmp_path, {"src/warren/records/format.py": "", "formats/block.md": page})
    assert offence in offences(tmp_path / "src", tmp_path / "formats")


def test_a_format_with_its_page_is_not_blamed(tmp_path: Path) -> None:
    modules = {
        "src/warren/records/format.py": "",
        "src/warren/log/manifest_format.py": "",
        "src/warren/log/information.py": "ROWS = list('x')",
        "src/warren/cli/rows.py": "ROW = struct.Struct('<I')",
    }
    pages = {"block.md": GOOD_PAGE, "manifest.md": GOOD_PAGE.replace("records/format", "log/manifest_format")}
    plant(tmp_path, modules | {f"formats/{name}": page for name, page in pages.items()} | {"formats/README.md": ""})
    assert not offences(tmp_path / "src", tmp_path / "formats")


@pytest.mark.parametrize("line", ["HEAD = struct.Struct('<I')", "HEAD: Final = Struct('<I')"])
def test_a_module_that_lays_out_bytes_is_a_format_whatever_its_name(tmp_path: Path, line: str) -> None:
    assert format_modules(plant(tmp_path, {"warren/durability/closing_block.py": line})) == [
        "durability/closing_block.py"
    ]
