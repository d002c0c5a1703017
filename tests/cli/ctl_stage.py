"""`warren ctl` run in this process, line by line, and compared with the recorded answers of rabbitmqctl."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.cli.ctl_lines import (
    ANSWERS,
    CODE_DIFFERS,
    DIRECTORY,
    LINES,
    OUTPUT_DIFFERS,
    PORT,
    CtlAnswer,
    CtlLine,
    normalized,
)
from warren.cli.ctl.main import main

RABBITMQCTL: list[dict[str, Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))


class CtlStage:
    """`target`: the options that name the broker."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        target: Sequence[str],
        directory: str,
        node: str = "",
        port: int = 0,
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._target = target
        self._directory = directory
        self._node = node
        self._port = port

    def run(self, *words: str, typed: str = "", program: str = "warrenctl") -> CtlAnswer:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        self._capsys.readouterr()
        code = main([*self._target, *words], program)
        captured = self._capsys.readouterr()
        return CtlAnswer(code, captured.out, captured.err)

    def differences(self, lines: Iterable[CtlLine]) -> list[str]:
        """Run the lines; where the answer is not that of rabbitmqctl."""
        numbers = {id(line): number for number, line in enumerate(LINES)}
        found = []
        for line in lines:
            expected = RABBITMQCTL[numbers[id(line)]]
            assert expected["line"] == line.text, "run `python -m tests.cli.ask_rabbitmqctl`"
            program, *words = (
                word.replace(DIRECTORY, self._directory).replace(PORT, str(self._port)) for word in line.words
            )
            answer = self.run(*words, typed=line.typed, program=program)
            if answer.code != expected["code"] and line.text not in CODE_DIFFERS:
                found.append(f"{line.text}: code {answer.code}, not {expected['code']}: {answer.err or answer.out}")
            out = normalized(answer.out, self._node, self._port, self._directory)
            if line.verb not in OUTPUT_DIFFERS and out != expected["out"]:
                found.append(f"{line.text}: prints {out}, not {expected['out']}")
            assert "Traceback" not in answer.err
        return found
