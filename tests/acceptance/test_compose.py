"""The shipped compose file and image, on stand-ins for the official images.

The tests run in their order: the sections of docs/operations/compose.md, and then failures.
"""

import json
import os
import re
import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.documents import page, section
from tests.rig.docker_daemon import (
    OFFICIAL_NAMES,
    Docker,
    private_docker,
    provide_official_images,
    why_not,
)

from harebell.dev.compose_credentials import SERVICES
from harebell.dev.ports import choose_ports

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.long,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = page("compose.md")
SHIPPED: Final = (
    ".dockerignore",
    "LICENSE",
    "README.md",
    "compose",
    "pyproject.toml",
    "requirements",
    "schemas",
    "services",
)
BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START: Final = "Start"
# The sections in the order of the page. The last one stops the stack, and its test comes last.
SECTIONS: Final = (
    "See what happens",
    "Logins",
    "Change settings",
    "Three brokers",
    "Upgrade",
    "Back up",
    "The image",
)
OTHER_MACHINES: Final = frozenset({"git pull"})  # the copy of the repository has no remote
NODES: Final = ("broker", "broker-2", "broker-3")
UP: Final = "docker compose up --detach --wait"
PORTS: Final = ("AMQP", "MANAGEMENT", "PROMETHEUS", "GRAFANA")
MAX_FIRST_RUN: Final = 90.0  # seconds from `up` to the run, on a machine with two idle cores
BUSY: Final = 4.0  # the factor for the load of other tests
RECOVERY: Final = 120.0  # seconds until a killed service is ready again, on a busy machine
PULSES: Final = 20  # runs, one each second
POLL: Final = 0.5  # seconds

NO_BUILD_TOOLS: Final = """
import os, pathlib, shutil, sys
found = [each for each in ("gcc", "cc", "make", "uv", "hatchling") if shutil.which(each)]
modules = pathlib.Path("/opt/harebell/lib").rglob("*.py")
cache = "__pycache__"
slow = [each for each in modules if not list((each.parent / cache).glob(f"{each.stem}.*.pyc"))]
print(os.getuid(), found, len(slow), sys.version_info[:2])
"""


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    directory = tmp_path_factory.mktemp("docker")
    with private_docker(directory) as daemon:
        provide_official_images(daemon, directory, tuple(OFFICIAL_NAMES))
        yield daemon
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the shipped files, because the commands of the page write settings."""
    copy = tmp_path_factory.mktemp("clone")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "settings.env", ".env")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    assert (copy / "compose/compose.yaml").read_bytes() == (
        ROOT / "compose/compose.yaml"
    ).read_bytes()
    return copy


class ComposeStack:
    """The stack of the page, in a copy of the repository."""

    def __init__(self, docker: Docker, clone: Path) -> None:
        self.docker = docker
        self.clone = clone
        self.ports = choose_ports(PORTS, seed=str(clone), remembered={})
        self.variables = {f"HAREBELL_{name}_PORT": str(port) for name, port in self.ports.items()}
        self.variables["COMPOSE_FILE"] = "compose/compose.yaml"

    def sh(self, command: str) -> str:
        """Run a command of the page in the folder of the repository and return its output."""
        assignments = "; ".join(f"export {name}={value}" for name, value in self.variables.items())
        script = f"set -eu; {assignments}; {command}"
        return self.docker.run(["sh", "-c", script], cwd=self.clone).stdout

    def run_blocks(self, title: str) -> str:
        """Run each block of a section of the page, and return all output."""
        blocks = BLOCK.findall(section(PAGE.read_text(), title))
        assert blocks, title
        lines = [line for block in blocks for line in block.splitlines()]
        return "".join(self.sh(line) for line in lines if line not in OTHER_MACHINES)

    def harebell(self, arguments: str) -> str:
        return self.sh(f"docker compose run --rm --no-TTY cli harebell {arguments}")

    def get(self, port: str, path: str) -> str:
        url = f"http://127.0.0.1:{self.ports[port]}{path}"
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
        return text

    def is_healthy(self, service: str) -> bool:
        """Return whether each container of a service is healthy."""
        lines = self.sh(f"docker compose ps --format json {service}").splitlines()
        return bool(lines) and all(json.loads(line)["Health"] == "healthy" for line in lines)

    def process(self, service: str) -> int:
        """Return the process id of the first process of a container."""
        container = self.sh(f"docker compose ps --quiet {service}").split()[0]
        return int(self.sh(f"docker inspect --format '{{{{.State.Pid}}}}' {container}"))


@pytest.fixture(scope="module")
def stack(docker: Docker, clone: Path) -> Iterator[ComposeStack]:
    # Only this build reaches the package index. The build of the page finds its layers.
    build = ["docker", "build", "--quiet", "--network", "host", "--file", "compose/Dockerfile"]
    docker.run([*build, "--tag", "harebell", "."], cwd=clone)
    stack = ComposeStack(docker, clone)
    yield stack
    docker.run(
        [
            "docker",
            "compose",
            "--file",
            "compose/compose.yaml",
            "--profile",
            "*",
            "down",
            "--volumes",
        ],
        cwd=clone,
        check=False,
    )


def wait_for_health(stack: ComposeStack, service: str) -> None:
    deadline = time.monotonic() + RECOVERY
    while not stack.is_healthy(service):
        assert time.monotonic() < deadline, stack.sh(f"docker compose logs --tail 40 {service}")
        time.sleep(POLL)


def test_image_contains_one_user_and_no_build_tool(stack: ComposeStack) -> None:
    confined = "docker run --rm --read-only --network none --cap-drop ALL harebell"
    code = json.dumps(NO_BUILD_TOOLS)

    facts = stack.docker.run([*confined.split(), "python", "-c", json.loads(code)]).stdout
    version = stack.sh(f"{confined} harebell --version")
    image = json.loads(stack.sh("docker image inspect harebell"))[0]["Config"]

    assert facts.strip() == "65532 [] 0 (3, 13)"
    assert re.fullmatch(r"harebell \d+\.\d+\.\d+\n", version)
    assert image["User"] == "65532:65532"
    assert image["StopSignal"] == "SIGTERM"
    assert image["Labels"]["org.opencontainers.image.title"] == "Harebell"


@pytest.mark.parametrize("service", SERVICES)
def test_image_starts_each_service(stack: ComposeStack, service: str) -> None:
    command = ["docker", "run", "--rm", "--read-only", "--network", "none", "harebell"]

    result = stack.docker.run([*command, "python", "-m", f"harebell.{service}"], check=False)

    assert result.returncode != 0
    assert "HAREBELL_AMQP_URL is required and missing" in result.stdout


@pytest.mark.requirement("S115")
def test_first_run_is_seen_after_one_start(stack: ComposeStack) -> None:
    started = time.monotonic()
    output = stack.run_blocks(START)
    seconds = time.monotonic() - started

    print(f"from up to a run seen: {seconds:.0f} s")  # noqa: T201  # the figure of the page
    assert re.search(r"hello-\d+ .*succeeded", output), output
    assert seconds < MAX_FIRST_RUN * BUSY


@pytest.mark.parametrize("title", SECTIONS)
def test_commands_of_the_page_succeed(stack: ComposeStack, title: str) -> None:
    output = stack.run_blocks(title)

    if title == "Logins":
        assert '"harebell_operator"' in output
    if title == "The image":
        assert "is optimised" in output


def test_each_queue_has_a_member_on_each_broker(stack: ComposeStack) -> None:
    lines = stack.sh(
        "docker compose exec --no-TTY broker "
        "rabbitmqctl --quiet --no-table-headers list_queues name type members"
    ).splitlines()
    quorum = [line for line in lines if "\tquorum\t" in line]

    assert len(quorum) > 40
    for line in quorum:
        assert all(f"rabbit@{node}" in line for node in NODES), line


def test_rabbitmq_has_no_default_login_and_no_administrator(stack: ComposeStack) -> None:
    users = stack.sh("docker compose exec --no-TTY broker rabbitmqctl --quiet list_users")

    assert "harebell_ticker" in users
    assert "acme" in users
    assert "guest" not in users
    assert "administrator" not in users


def test_owner_of_the_database_is_no_superuser(stack: ComposeStack) -> None:
    query = "SELECT rolname FROM pg_roles WHERE rolsuper"

    roles = stack.sh(
        f'docker compose exec --no-TTY database psql --username postgres -Atc "{query}"'
    )

    assert roles.split() == ["postgres"]


@pytest.mark.requirement("S115")
def test_prometheus_scrapes_every_service_and_grafana_reads_every_file(stack: ComposeStack) -> None:
    deadline = time.monotonic() + RECOVERY
    wanted = {*SERVICES, "audit", "rabbitmq"}
    while True:
        targets = json.loads(stack.get("PROMETHEUS", "/api/v1/targets"))["data"]["activeTargets"]
        if {each["labels"]["job"] for each in targets if each["health"] == "up"} == wanted:
            break
        assert time.monotonic() < deadline, targets
        time.sleep(POLL)
    files = json.loads(stack.get("GRAFANA", "/files"))
    rules = json.loads(stack.get("PROMETHEUS", "/api/v1/rules"))["data"]["groups"]

    assert files["datasources"] == {"prometheus": "http://prometheus:9090"}
    assert len(files["dashboards"]) == len(
        list((ROOT / "compose/grafana/dashboards").glob("*.json"))
    )
    assert rules


@pytest.mark.parametrize("service", ["executor", "ticker"])
def test_killed_service_returns_and_loses_no_run(stack: ComposeStack, service: str) -> None:
    key = f"pulse-{service}"
    put = {
        "key": key,
        "when": {"every": "1s", "times": PULSES},
        "target": {"task": {"name": "harebell.echo"}},
    }
    (stack.clone / "pulse.json").write_text(json.dumps(put))
    stack.sh("docker compose run --rm --no-TTY cli harebell schedule put - < pulse.json")
    time.sleep(POLL)

    os.kill(stack.process(service), signal.SIGKILL)

    wait_for_health(stack, service)
    deadline = time.monotonic() + RECOVERY
    while True:
        output = stack.harebell(f"--output json run list --key {key} --limit 100")
        states = re.findall(r'"state": ?"(\w+)"', output)
        if states.count("succeeded") == PULSES:
            break
        assert time.monotonic() < deadline, output
        time.sleep(POLL)
    assert len(states) == PULSES


def test_stop_of_the_page_ends_every_container(stack: ComposeStack) -> None:
    stack.run_blocks("Stop")

    assert "harebell_credentials" in stack.sh("docker volume ls --quiet").split()
