"""The compose file and the Dockerfile: read by the real tools, and the rules that they keep."""

import importlib.util
import json
import os
import subprocess
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.architecture.source_tree import ROOT, setting_variables

from harebell.dev.compose_credentials import MASTER, OWNERS, SERVICES
from harebell.runtime.settings import ExecutorSettings

COMPOSE: Final = ROOT / "compose"
BIN: Final = Path(sys.executable).parent
PROFILES: Final = ("cli", "cluster", "observability")
JOBS: Final = {"credentials", "topology", "migrate", "cli", "hello"}
BROKERS: Final = {"broker", "broker-2", "broker-3"}
OFFICIAL: Final = ("rabbitmq:4-management", "postgres:17", "prom/prometheus:v", "grafana/grafana:")
SECRETS: Final = "/run/secrets/harebell"
ROOT_USER: Final = "0:0"


@cache
def config(*profiles: str) -> dict[str, Any]:
    """Return the compose file as Compose resolves it, without the variables of this machine."""
    command = [str(BIN / "docker-compose"), "--file", str(COMPOSE / "compose.yaml")]
    for profile in profiles:
        command += ["--profile", profile]
    result = subprocess.run(  # noqa: S603  # a fixed command
        [*command, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "level=warning" not in result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = config(*PROFILES)["services"]
    return found


def volumes_of(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the mounts of a service by their path in the container."""
    return {each["target"]: each for each in service.get("volumes", ())}


def seconds(duration: str) -> float:
    """Return the seconds of a duration such as 1m30s."""
    parts = duration.replace("m", " ").rstrip("s").split()
    if "m" not in duration:
        return float(parts[0])
    return 60 * float(parts[0]) + (float(parts[1]) if len(parts) > 1 else 0.0)


def test_dockerfile_has_no_finding_of_hadolint() -> None:
    result = subprocess.run(  # noqa: S603  # a fixed command
        [str(BIN / "hadolint"), "--no-color", str(COMPOSE / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stdout) == (0, "")


def test_context_of_the_image_begins_empty() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if not line.startswith("#")]

    assert rules[0] == "*"
    assert not [rule for rule in rules if rule.startswith(("!compose", "!.", "!tests"))]


def test_core_services_start_without_a_profile() -> None:
    assert set(config()["services"]) == {
        "credentials",
        "database",
        "broker",
        "topology",
        "migrate",
        *SERVICES,
    }


def test_profiles_add_their_services() -> None:
    core = set(config()["services"])

    assert set(config("cluster")["services"]) - core == {"broker-2", "broker-3"}
    assert set(config("observability")["services"]) - core == {"audit", "prometheus", "grafana"}
    assert set(config("cli")["services"]) - core == {"cli", "hello"}


def test_servers_use_official_images_and_the_rest_one_image() -> None:
    images = {name: each["image"] for name, each in services().items()}
    own = {name for name, image in images.items() if image == "harebell:latest"}
    chart = yaml.safe_load((COMPOSE / "chart" / "values.yaml").read_text())

    assert own == {*SERVICES, "credentials", "migrate", "cli", "hello", "audit"}
    assert all(image.startswith(OFFICIAL) for name, image in images.items() if name not in own)
    assert chart["image"]["repository"] == "harebell"


@pytest.mark.parametrize("name", sorted(services()))
def test_container_is_confined(name: str) -> None:
    service = services()[name]
    limits = service["deploy"]["resources"]["limits"]
    log = service["logging"]["options"]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == ("no" if name in JOBS else "unless-stopped")
    assert int(limits["memory"]) <= 1024**3
    assert limits["pids"] <= 2000
    assert (log["max-size"], log["max-file"]) == ("10m", "5")
    assert not service.get("privileged")
    assert not [path for path in volumes_of(service) if "docker.sock" in path]


def test_only_the_job_of_the_credentials_is_root_and_it_has_no_network() -> None:
    roots = {name for name, each in services().items() if each.get("user") == ROOT_USER}
    job = services()["credentials"]

    assert roots == {"credentials"}
    assert (job["cap_add"], job["network_mode"]) == (["CHOWN"], "none")
    assert "USER 65532:65532" in (COMPOSE / "Dockerfile").read_text().splitlines()
    assert not [
        name for name, each in services().items() if each.get("cap_add") and name not in roots
    ]


def test_ports_are_published_on_loopback_only() -> None:
    published = {
        (name, port["target"]): port.get("host_ip")
        for name, each in services().items()
        for port in each.get("ports", ())
    }

    assert set(published) == {
        ("broker", 5672),
        ("broker", 15672),
        ("prometheus", 9090),
        ("grafana", 3000),
    }
    assert set(published.values()) == {"127.0.0.1"}


def test_only_executor_and_dlq_inspector_reach_other_machines() -> None:
    networks = config(*PROFILES)["networks"]
    open_networks = {name for name, each in networks.items() if not each.get("internal")}
    with_way = {
        name for name in services() if open_networks & set(services()[name].get("networks") or ())
    }

    assert with_way == {"executor", "dlq_inspector", "broker", "prometheus", "grafana"}
    assert {each["image"] for name in SERVICES for each in [services()[name]]} == {
        "harebell:latest"
    }


def test_each_container_mounts_its_own_credentials_read_only() -> None:
    job = volumes_of(services()["credentials"])
    folders = {path.removeprefix("/credentials/"): each["source"] for path, each in job.items()}
    users = {
        folder: {
            name
            for name, each in services().items()
            if (mount := volumes_of(each).get(SECRETS)) and mount["source"] == volume
        }
        for folder, volume in folders.items()
    }

    assert set(folders) == {MASTER, *OWNERS}
    assert users == {
        MASTER: set(),
        "broker": {*BROKERS, "topology"},
        "database": {"database"},
        "migration": {"migrate"},
        "cli": {"cli", "hello"},
        "audit": {"audit"},
        "grafana": {"grafana"},
        **{service: {service} for service in SERVICES},
    }
    for name, each in services().items():
        if SECRETS in volumes_of(each):
            assert volumes_of(each)[SECRETS]["read_only"] is True, name


def test_files_of_the_repository_are_mounted_read_only_and_exist() -> None:
    for name, each in services().items():
        for path, mount in volumes_of(each).items():
            if mount["type"] == "bind":
                assert mount["read_only"] is True, (name, path)
                assert Path(mount["source"]).exists(), (name, path)


def test_no_variable_contains_a_secret() -> None:
    for name, each in services().items():
        for variable in each.get("environment", {}):
            if any(word in variable for word in ("PASSWORD", "SECRET", "TOKEN", "_URL")):
                assert variable.endswith("_FILE") or variable == "PROMETHEUS_URL", (name, variable)


@pytest.mark.parametrize("name", SERVICES)
def test_service_checks_the_topology_and_the_identity_of_callers(name: str) -> None:
    environment = services()[name]["environment"]
    assert environment["HAREBELL_TOPOLOGY_MODE"] == "check"
    assert environment["HAREBELL_IDENTITY"] == "verified"
    assert {variable.removesuffix("_FILE") for variable in environment} <= setting_variables()


@pytest.mark.parametrize("name", SERVICES)
def test_service_waits_for_the_migration_and_the_topology(name: str) -> None:
    conditions = {key: each["condition"] for key, each in services()[name]["depends_on"].items()}

    assert conditions == {
        "migrate": "service_completed_successfully",
        "topology": "service_completed_successfully",
    }


@pytest.mark.parametrize("name", SERVICES)
def test_stop_of_a_service_is_longer_than_its_drain(name: str) -> None:
    drain = ExecutorSettings.model_fields["shutdown_timeout"].default
    assert isinstance(drain, timedelta)

    assert seconds(services()[name]["stop_grace_period"]) >= drain.total_seconds() + 10


def test_every_server_and_service_has_a_health_check() -> None:
    without = {name for name, each in services().items() if "healthcheck" not in each}
    broker = services()["broker"]["healthcheck"]["test"][-1]

    assert without == JOBS
    assert broker == (
        "rabbitmq-diagnostics -q check_running && rabbitmq-diagnostics -q check_local_alarms"
    )


def test_prometheus_scrapes_every_service_under_its_name() -> None:
    path = COMPOSE / "prometheus" / "prometheus.yml"
    checked = subprocess.run(  # noqa: S603  # a fixed command
        ["promtool", "check", "config", str(path)],  # noqa: S607  # of Debian
        capture_output=True,
        text=True,
        check=False,
    )
    jobs = {each["job_name"]: each for each in yaml.safe_load(path.read_text())["scrape_configs"]}

    assert checked.returncode == 0, checked.stderr
    assert "rule files found" in checked.stdout or "rules found" in checked.stdout
    assert set(jobs) == {*SERVICES, "audit", "rabbitmq"}
    for service in (*SERVICES, "audit"):
        assert jobs[service]["dns_sd_configs"][0]["names"] == [service]


def test_grafana_reads_the_dashboards_where_they_are_mounted() -> None:
    mounts = volumes_of(services()["grafana"])
    path = COMPOSE / "grafana" / "provisioning" / "dashboards" / "harebell.yml"
    (provider,) = yaml.safe_load(path.read_text())["providers"]

    assert mounts[provider["options"]["path"]]["source"] == str(COMPOSE / "grafana" / "dashboards")


@pytest.mark.parametrize("path", sorted(COMPOSE.rglob("*.sh")), ids=lambda path: path.name)
def test_script_is_executable_and_valid(path: Path) -> None:
    checked = subprocess.run(["sh", "-n", str(path)], check=False)  # noqa: S603, S607  # fixed

    assert checked.returncode == 0
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize(
    ("config_arguments", "base_prefix", "is_optimised"),
    [
        ("'--prefix=/usr/local' '--enable-optimizations'", "/usr/local", True),
        ("'--prefix=/usr'", "/usr", True),
        ("'--prefix=/usr/local'", "/usr/local", False),
    ],
)
def test_smoke_test_recognises_an_optimised_python(
    config_arguments: str, base_prefix: str, *, is_optimised: bool
) -> None:
    spec = importlib.util.spec_from_file_location("smoke", COMPOSE / "smoke.py")
    assert spec is not None
    assert spec.loader is not None
    smoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(smoke)

    proof = smoke.proof_of_optimisation(config_arguments, base_prefix)

    assert (proof is not None) is is_optimised
