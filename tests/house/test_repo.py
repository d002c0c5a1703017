"""The repository itself: the targets are there, the README fits a screen, links lead somewhere, no machine is named."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.house.markdown import links
from tests.house.source_tree import ROOT, plant

TARGETS = """
    setup setup-spark peers run quick test test-pure check simulate torture mutants bench golden checklist clean
"""
PAGES = """
    README ARCHITECTURE CONTRIBUTING CHANGELOG
    docs/glossary docs/configuration docs/operations docs/checklist docs/failure_model docs/decisions/README
"""
README_LINES_MAX = 60
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|opt/wheels|opt/pypi)/\w")


def targets_with_help(makefile: str) -> list[str]:
    return re.findall(r"^([a-z-]+):[^\n]*## \S", makefile, re.MULTILINE)


def broken_links(root: Path, pages: list[Path]) -> list[str]:
    return [
        f"{page.relative_to(root)} → {target}"
        for page in pages
        for target in links(page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.partition("#")[0]).exists()
    ]


def _tracked(*patterns: str) -> list[Path]:
    """Files of the repository, those not committed yet too, as long as they are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in sorted(set(names.split("\0"))) if name and (path := ROOT / name).is_file()]


def test_every_target_is_there_with_a_line_of_help() -> None:
    there = targets_with_help((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert not [target for target in TARGETS.split() if target not in there]


def test_bare_make_lists_the_targets() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [target for target in TARGETS.split() if f"make {target} " not in printed]


def test_every_page_is_there() -> None:
    assert not [page for page in PAGES.split() if not (ROOT / f"{page}.md").is_file()]


def test_the_readme_fits_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_every_link_leads_somewhere() -> None:
    assert not broken_links(ROOT, _tracked("*.md"))


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    text = "[a](b.md) [c](gone.md#x) [d](https://e.f) [g](#h)\n```\n[i](j.md)\n```\n[k](docs/) [l](docs/m.md)"
    plant(tmp_path, {"a.md": text, "b.md": "", "docs/x.md": ""})
    assert broken_links(tmp_path, [tmp_path / "a.md"]) == ["a.md → gone.md#x", "a.md → docs/m.md"]


def test_no_file_names_a_machine_it_was_written_on() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in _tracked()
        if path.suffix not in (".bin", ".pyc")
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]


def test_a_path_of_some_machine_is_recognised() -> None:
    assert MACHINE_PATH.search("see " + "/work/" + "main")
    assert MACHINE_PATH.search("cd=" + "/root/" + "x")
    assert not MACHINE_PATH.search("src/work/x, https://host.org/work/x, /var/lib/warren, .venv/root/x")
