"""Markdown as the house tests read it: headings with the text below them, and links."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEADING = re.compile(r"^(#{1,6})\s+(.*)$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = "```"


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: str  # up to the next heading of any depth


def sections(page: str) -> list[Section]:
    """A page cut at its headings; what stands before the first one is left out, and so is nothing else."""
    found: list[tuple[str, list[str]]] = []
    in_code = False
    for line in page.splitlines():
        in_code ^= line.startswith(FENCE)
        if (heading := HEADING.match(line)) and not in_code:
            found.append((heading[2], []))
        elif found:
            found[-1][1].append(line)
    return [Section(title, "\n".join(lines)) for title, lines in found]


def links(page: str) -> list[str]:
    """Targets of inline links, code blocks left out."""
    prose = "".join(page.split(FENCE)[::2])
    return LINK.findall(prose)


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = [line.strip() for line in text.splitlines()]
    bodies = [i for i, line in enumerate(lines) if re.fullmatch(r"\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*", line)]
    found: list[list[str]] = []
    for start in bodies:
        for line in lines[start + 1 :]:
            if "|" not in line:
                break
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return found
