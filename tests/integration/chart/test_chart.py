"""The Helm chart: rendered, validated with the schemas of Kubernetes, and rejected bad values."""

import importlib.util
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import helm_python
import kubernetes_validate
import pytest
import yaml
from tests.architecture.source_tree import ROOT

from harebell.runtime.settings import PREFIX, ExecutorSettings, ServiceSettings

CHART: Final = ROOT / "compose" / "chart"
EXAMPLES: Final = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES: Final = "1.34"
OF_OPERATORS: Final = {"ScaledObject", "PodMonitor"}  # kinds that operators define
EXECUTOR: Final = "executor-default"
SECRET: Final = {"existingSecret": "harebell-urls"}


def example(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())
    return values


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of the rendered chart."""
    files = helm_python.Chart.load(str(CHART)).render(values, name="prod", namespace="jobs")
    return [
        each
        for path, text in files.items()
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]


def of_kind(kind: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by their names without the name of the release."""
    return {
        each["metadata"]["name"].removeprefix("prod-"): each
        for each in objects(values)
        if each["kind"] == kind
    }


def pods(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in objects(values):
        if each["kind"] in {"Deployment", "Job"}:
            yield each["spec"]["template"]["spec"]


def environment(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_chart_has_no_lint_warning(path: Any) -> None:
    report = helm_python.lint(str(CHART), yaml.safe_load(path.read_text()), strict=True)

    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_object_matches_the_schemas_of_kubernetes(path: Any) -> None:
    kinds = set()
    for each in objects(yaml.safe_load(path.read_text())):
        kinds.add(each["kind"])
        if each["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)

    assert {"Deployment", "PodDisruptionBudget"} <= kinds


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pods_run_without_privileges_on_a_read_only_file_system(path: Any) -> None:
    for pod in pods(yaml.safe_load(path.read_text())):
        (container,) = pod["containers"]

        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_each_service_runs_its_own_module_with_its_own_urls() -> None:
    deployments = of_kind("Deployment", example("production"))

    assert set(deployments) == {
        "intake",
        "ticker",
        "dispatcher",
        "dlq-inspector",
        "executor-default",
        "executor-reports",
    }
    for name, each in deployments.items():
        service = "executor" if name.startswith("executor") else name
        pod = each["spec"]["template"]["spec"]
        urls = next(volume for volume in pod["volumes"] if volume["name"] == "urls")
        module = pod["containers"][0]["command"][-1]

        assert module == f"harebell.{service.replace('-', '_')}"
        assert importlib.util.find_spec(f"{module}.__main__")
        assert [item["key"] for item in urls["secret"]["items"]] == [
            f"{service}-amqp-url",
            f"{service}-database-url",
        ]


def test_environment_of_each_service_consists_of_valid_settings() -> None:
    classes: list[type[ServiceSettings]] = [ServiceSettings]
    classes += ServiceSettings._classes  # noqa: SLF001  # the settings of all services
    known = {PREFIX + name.upper() for each in classes for name in each.model_fields}
    for each in of_kind("Deployment", example("production")).values():
        names = {name.removesuffix("_FILE") for name in environment(each)}

        assert names <= known | {"HAREBELL_TENANTS"}


def test_no_environment_variable_contains_a_url() -> None:
    for each in of_kind("Deployment", example("production")).values():
        assert [value for value in environment(each).values() if value and "://" in value] == []


def test_settings_of_a_pool_have_precedence_over_the_settings_of_all_services() -> None:
    values = SECRET | {
        "settings": {"HAREBELL_LOG_LEVEL": "warning", "HAREBELL_LEASE": "20s"},
        "executors": {
            "default": {"replicas": 1, "settings": {"HAREBELL_LEASE": "30s"}},
            "reports": {"replicas": 1},
        },
    }
    deployments = of_kind("Deployment", values)

    default, reports = (
        environment(deployments[f"executor-{pool}"]) for pool in ("default", "reports")
    )
    assert (default["HAREBELL_LEASE"], default["HAREBELL_LOG_LEVEL"]) == ("30s", "warning")
    assert (reports["HAREBELL_LEASE"], reports["HAREBELL_POOL"]) == ("20s", "reports")


def test_grace_period_is_longer_than_the_shutdown_timeout_of_an_executor() -> None:
    default: timedelta = ExecutorSettings.model_fields["shutdown_timeout"].default

    for pod in pods(example("production")):
        if "terminationGracePeriodSeconds" in pod:
            assert pod["terminationGracePeriodSeconds"] > default.total_seconds()


def test_migration_runs_before_the_services_of_a_new_version() -> None:
    (job,) = of_kind("Job", example("production")).values()

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert of_kind("Job", example("small")) == {}


def test_only_executors_and_the_dlq_inspector_reach_other_servers() -> None:
    policies = of_kind("NetworkPolicy", example("production"))

    reaching = {
        name
        for name, each in policies.items()
        if any("to" in rule for rule in each["spec"]["egress"])
    }
    assert reaching == {"executor-default", "executor-reports", "dlq-inspector"}
    denied = policies[EXECUTOR]["spec"]["egress"][-1]["to"][0]["ipBlock"]["except"]
    assert "169.254.0.0/16" in denied


def test_autoscaled_pool_has_no_fixed_number_of_executors() -> None:
    values = example("production")
    deployments = of_kind("Deployment", values)
    (scaled,) = of_kind("ScaledObject", values).values()

    assert "replicas" not in deployments["executor-default"]["spec"]
    assert deployments["executor-reports"]["spec"]["replicas"] == 1
    assert scaled["spec"]["scaleTargetRef"]["name"] == "prod-executor-default"
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["query"] == 'max(harebell_due_backlog_runs{pool="default"})'


def test_schema_describes_every_default_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    report = helm_python.lint(str(CHART), values | SECRET, strict=True)

    assert report["errors"] == []


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({}, "existingSecret must name the secret"),
        (SECRET | {"executors": {"default": None}}, "executors must contain at least one pool"),
        (
            SECRET | {"executors": {"default": {"replicas": 1, "autoscaling": {"enabled": True}}}},
            "executors.default.autoscaling.prometheusAddress must be",
        ),
        (
            SECRET
            | {
                "executors": {
                    "default": {
                        "replicas": 1,
                        "autoscaling": {
                            "enabled": True,
                            "prometheusAddress": "http://prometheus:9090",
                            "minReplicas": 3,
                            "maxReplicas": 2,
                        },
                    }
                }
            },
            "minReplicas must not exceed maxReplicas",
        ),
        (
            SECRET | {"settings": {"HAREBELL_AMQP_URL": "amqp://broker"}},
            "settings must not contain HAREBELL_AMQP_URL",
        ),
        (SECRET | {"intake": {"replicas": "two"}}, "replicas"),
        (SECRET | {"intakes": {}}, "intakes"),
        (SECRET | {"settings": {"LOG_LEVEL": "info"}}, "LOG_LEVEL"),
        (SECRET | {"terminationGracePeriodSeconds": 5}, "terminationGracePeriodSeconds"),
    ],
)
def test_bad_values_are_rejected_with_their_name(values: dict[str, Any], part: str) -> None:
    with pytest.raises(helm_python.HelmError) as raised:
        objects(values)

    assert part in str(raised.value)
