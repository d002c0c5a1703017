"""The wheel, the container and the service, from a source checkout to a broker that serves, without an engine.

The steps of packaging/Containerfile are run as they stand, in a directory in place of the image's root: COPY copies,
RUN runs in a shell with a fresh virtual environment first on PATH, HEALTHCHECK and CMD are started with ENV. Only what
needs root (packages of Debian, a user) is left out. The commands of the guides run in the same root, so they share one
compilation and one installation.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest

from tests.house.source_tree import DOCS, ROOT
from tests.server.load import until

pytestmark = pytest.mark.slow
PACKAGING = ROOT / "packaging"
SECONDS_MAX = 240.0
NEEDS_ROOT = ("apt-get ", "useradd ")
NEEDS_SYSTEMD = ("systemctl ", "useradd ", "install -m 0644")
IMAGE_PATHS = ("/src", "/wheels", "/var/lib/warren", "/opt/warren")
PORTS = {"5672": "WARREN_PORT", "15672": "WARREN_MANAGEMENT_PORT", "15692": "WARREN_PROMETHEUS_PORT"}


@dataclass(frozen=True, slots=True)
class Step:
    keyword: str
    rest: str


def steps_of(text: str) -> list[Step]:
    """Instructions of a Containerfile; HEALTHCHECK continues on the next line."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    split = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [Step(keyword, rest.strip()) for keyword, _, rest in split]


CONTAINERFILE = steps_of((PACKAGING / "Containerfile").read_text())


class Image:
    """A directory in place of an image's root, with a virtual environment in place of its Python."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / "opt" / "warren"
        self.directory = root
        foreign = ("PYTHON", "WARREN_", "RABBITMQ_", "VIRTUAL_ENV")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env |= {"PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}", "PIP_NO_BUILD_ISOLATION": "0"}

    def inside(self, text: str) -> str:
        """The same text with paths of the image below `root`."""
        for path in IMAGE_PATHS:
            text = re.sub(rf"(?<![\w.]){re.escape(path)}(?=[/\s\"'.]|$)", f"{self.root}{path}", text)
        return text

    def run(self, command: str) -> str:
        """The build uses the libraries of the tests' own environment, where mypyc is: PYTHON=… of make. A build
        environment of pip's own would be the same (tests/house/test_compiled.py), and take a minute more."""
        command = self.inside(command).replace("PYTHON=python", f"PYTHON={sys.executable}")
        done = subprocess.run(
            ["sh", "-euc", command],
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def copy(self, rest: str) -> None:
        words = shlex.split(rest)
        if words[0].startswith("--from="):
            source, target = (Path(self.inside(word)) for word in words[1:])
            shutil.copytree(source, target)
            return
        *sources, target_name = words
        for source_name in sources:
            source, target = ROOT / source_name, self.directory / target_name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, target)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """All stages of the Containerfile."""
    image = Image(tmp_path_factory.mktemp("image"))
    (image.root / "var" / "lib" / "warren").mkdir(parents=True)
    environment = [sys.executable, "-m", "venv", str(image.venv)]
    subprocess.run(environment, check=True, capture_output=True, timeout=SECONDS_MAX)
    for step in CONTAINERFILE:
        if step.keyword == "WORKDIR":
            image.directory = Path(image.inside(step.rest))
            image.directory.mkdir(parents=True)
        elif step.keyword == "COPY":
            image.copy(step.rest)
        elif step.keyword == "RUN" and not step.rest.startswith(NEEDS_ROOT):
            image.run(step.rest)
        elif step.keyword == "ENV":
            image.env |= dict(each.split("=", 1) for each in shlex.split(image.inside(step.rest)))
        else:
            assert step.keyword in {
                "ARG",
                "FROM",
                "RUN",
                "USER",
                "VOLUME",
                "EXPOSE",
                "STOPSIGNAL",
                "HEALTHCHECK",
                "CMD",
            }
    return image


def free_ports() -> dict[str, str]:
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        return {port: str(each.getsockname()[1]) for port, each in zip(PORTS, (one, two, three), strict=True)}


class Container:
    """CMD of the image, on free ports."""

    def __init__(self, image: Image, **env: str) -> None:
        [command] = [json.loads(step.rest) for step in CONTAINERFILE if step.keyword == "CMD"]
        self.image = image
        self.ports = free_ports()
        self.env = image.env | {PORTS[port]: number for port, number in self.ports.items()} | env
        self.log = image.root / "log"
        with self.log.open("ab") as log:
            command[0] = str(image.venv / "bin" / command[0])
            self.process = subprocess.Popen(command, cwd=image.root, env=self.env, stdout=log, stderr=log)

    def is_healthy(self) -> bool:
        [check] = [step.rest.partition("CMD ")[2] for step in CONTAINERFILE if step.keyword == "HEALTHCHECK"]
        for port, number in self.ports.items():
            check = check.replace(f":{port}/", f":{number}/")
        command = json.loads(check)
        command[0] = str(self.image.venv / "bin" / command[0])
        return subprocess.run(command, env=self.env, capture_output=True, check=False).returncode == 0

    def connect(self, user: str, password: str) -> pika.BlockingConnection:
        credentials = pika.PlainCredentials(user, password)
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", int(self.ports["5672"]), "/", credentials)
        )

    def __enter__(self) -> Container:
        until(self.is_healthy, "the health check succeeds", SECONDS_MAX)
        return self

    def __exit__(self, *error: object) -> None:
        [stop] = [signal.Signals[step.rest] for step in CONTAINERFILE if step.keyword == "STOPSIGNAL"]
        self.process.send_signal(stop)
        try:
            assert self.process.wait(60) == 0, self.log.read_text()
        finally:
            self.process.kill()


def test_the_wheel_of_make_wheel_is_compiled_and_has_its_entry_points(image: Image) -> None:
    printed = image.run("warren --version")
    assert re.fullmatch(r"warren \d+\.\d+\.\d+ \(compiled, Python \S+\)\n", printed)
    assert image.run("python -m warren --version") == printed
    [wheel] = (image.root / "src" / "dist").glob("*.whl")
    assert "+pure" not in wheel.name and "none-any" not in wheel.name
    assert image.run("python -c 'import warren; print(warren.__file__)'").startswith(str(image.venv))


def test_a_container_publishes_keeps_its_data_and_does_not_depend_on_its_host_name(image: Image) -> None:
    user = {"RABBITMQ_DEFAULT_USER": "ann", "RABBITMQ_DEFAULT_PASS": "secret"}
    with Container(image, HOSTNAME="first", **user) as container, container.connect("ann", "secret") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("jobs", durable=True)
        channel.basic_publish("", "jobs", b"resize 7", pika.BasicProperties(delivery_mode=2))
    assert not container.is_healthy(), "it has stopped"
    with Container(image, HOSTNAME="second") as container, container.connect("ann", "secret") as connection:
        assert connection.channel().basic_get("jobs", auto_ack=True)[2] == b"resize 7"
    log = container.log.read_text()
    assert "kernels=compiled" in log and "pure Python" not in log
    assert log.rstrip().endswith(f"INFO stopped directory={image.root}/var/lib/warren")


def shell_lines(page: str) -> Iterator[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


@pytest.mark.parametrize("page", ["service.md", "upgrade.md"])
def test_the_commands_of_the_guides_run(image: Image, page: str) -> None:
    """`make wheel` ran already, as a step of the container."""
    image.directory = image.root / "src"
    lines = list(shell_lines(page))
    wanted = [line for line in lines if not line.startswith(NEEDS_SYSTEMD) and line != "make wheel"]
    assert len(wanted) >= 3
    with Container(image):
        """Makes the data directory that is copied and verified."""
    for name in ("warren.before", "warren.after"):
        shutil.rmtree(image.root / "var" / "lib" / name, ignore_errors=True)
    for line in wanted:
        image.run(line)
    with Container(image):
        """It still starts."""


def test_a_machine_that_cannot_compile_gets_a_version_that_pip_prints(tmp_path: Path) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "warren"\nversion = "1.2.3"\n[tool.setuptools.packages.find]\nwhere = ["src"]\n'
    )
    (tmp_path / "src" / "warren").mkdir(parents=True)
    (tmp_path / "src" / "warren" / "__init__.py").write_text("# mypyc: compile\n")
    line = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", "dist", "."]
    env = {name: value for name, value in os.environ.items() if name not in ("WARREN_REQUIRE_EXT", "WARREN_PURE")}
    made = subprocess.run(
        line, cwd=tmp_path, env=env | {"CC": "/bin/false"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert "warren-1.2.3+pure-py3-none-any.whl" in made.stdout, made.stderr
    failed = subprocess.run(
        line,
        cwd=tmp_path,
        env=env | {"CC": "/bin/false", "WARREN_REQUIRE_EXT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert failed.returncode != 0
    assert "ERROR: warren is built without compiled modules" in failed.stderr + failed.stdout


def test_make_run_needs_no_development_libraries_and_takes_port_and_arguments(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    line = ["make", "--dry-run", "--no-print-directory", "run", "PORT=5673", "ARGS=--log-level debug"]
    dry = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    installs = [each for each in dry.splitlines() if "pip install" in each]
    assert installs == [".venv/bin/python -m pip install --disable-pip-version-check --editable ."]
    assert dry.splitlines()[-1] == ".venv/bin/warren serve --data-dir data --port 5673 --log-level debug"
    assert "amqp://guest:guest@127.0.0.1:5673/" in dry


# -- the unit of systemd ----------------------------------------------------------------------------------------------

UNIT = PACKAGING / "warren.service"


def unit_values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_the_unit_notifies_and_may_write_to_its_own_directory_only() -> None:
    assert unit_values("Type") == ["notify"]
    assert unit_values("ProtectSystem") == ["strict"] and not unit_values("ReadWritePaths")
    assert unit_values("StateDirectory") == ["warren"] and unit_values("StateDirectoryMode") == ["0700"]
    assert unit_values("RestartPreventExitStatus") == ["16 64"]


def test_systemd_accepts_the_unit(image: Image, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None and not os.environ.get("CI"):
        pytest.skip("systemd is not installed")
    unit = tmp_path / "warren.service"
    unit.write_text(image.inside(UNIT.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_compose_file_has_the_health_check_and_the_ports_of_the_image() -> None:
    compose = (PACKAGING / "compose.yaml").read_text()
    [check] = [json.loads(step.rest.partition("CMD ")[2]) for step in CONTAINERFILE if step.keyword == "HEALTHCHECK"]
    listed = re.search(r"test:\n((?: +- .*\n)+)", compose)
    assert listed is not None
    assert [line.strip().removeprefix("- ") for line in listed[1].splitlines()] == ["CMD", *check]
    [exposed] = [step.rest.split() for step in CONTAINERFILE if step.keyword == "EXPOSE"]
    assert re.findall(r':(\d+)"$', compose, re.MULTILINE) == exposed
    [volume] = [step.rest for step in CONTAINERFILE if step.keyword == "VOLUME"]
    assert f"data:{volume}\n" in compose
