"""The Helm chart: rendered, validated with the schemas of Kubernetes, and rejected bad values."""

import importlib.util
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import helm_python
import promql_parser
import pytest
import yaml
from tests.architecture.source_tree import ROOT
from tests.integration.chart.operators import insert_runs, schema_errors
from tests.rig.servers import as_role

from harebell.runtime.settings import PREFIX, ExecutorSettings, ServiceSettings
from harebell.ticker.backlog import count_due_runs

CHART: Final = ROOT / "compose" / "chart"
EXAMPLES: Final = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES: Final = "1.34"
# Operators define these kinds.
OF_OPERATORS: Final = {"ScaledObject", "TriggerAuthentication", "PodMonitor"}
EXECUTOR: Final = "executor-default"
AUTOSCALING_OF_PREVIOUS: Final = {
    "enabled": True,
    "prometheusAddress": "http://prometheus:9090",
    "maxReplicas": 10,
    "runsPerExecutor": 1000,
}
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
    import kubernetes_validate  # noqa: PLC0415  # builds 39 parsers, which takes seconds

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
        "executor-mail",
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
    executors = {"executor-default", "executor-mail", "executor-reports"}
    assert reaching == executors | {"dlq-inspector"}
    denied = policies[EXECUTOR]["spec"]["egress"][-1]["to"][0]["ipBlock"]["except"]
    assert "169.254.0.0/16" in denied


def test_autoscaled_pool_has_no_fixed_number_of_executors() -> None:
    values = example("production")
    deployments = of_kind("Deployment", values)
    scaled = of_kind("ScaledObject", values)

    assert set(scaled) == {"executor-default", "executor-mail"}
    assert "replicas" not in deployments["executor-default"]["spec"]
    assert deployments["executor-reports"]["spec"]["replicas"] == 1
    assert scaled[EXECUTOR]["spec"]["scaleTargetRef"]["name"] == "prod-executor-default"
    assert scaled[EXECUTOR]["spec"]["minReplicaCount"] == 0
    assert scaled["executor-mail"]["spec"]["minReplicaCount"] == 1


def triggers(scaled: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in scaled["spec"]["triggers"]}


def test_pool_is_scaled_by_due_runs_planned_runs_and_the_ledger() -> None:
    found = triggers(of_kind("ScaledObject", example("production"))[EXECUTOR])

    assert set(found) == {"due", "planned", "due-in-ledger"}
    assert found["due"]["metadata"]["query"] == 'max(harebell_due_backlog_runs{pool="default"})'
    assert found["due"]["metadata"]["ignoreNullValues"] == "false"
    assert (
        found["planned"]["metadata"]["query"]
        == 'max(harebell_planned_runs{pool="default",within="1m"})'
    )
    thresholds = {each["metadata"].get("threshold", "1000") for each in found.values()}
    assert thresholds == {"1000"} == {found["due-in-ledger"]["metadata"]["targetQueryValue"]}


def test_ledger_is_read_with_a_url_of_the_secret() -> None:
    (authentication,) = of_kind("TriggerAuthentication", example("production")).values()

    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "connection", "name": "harebell-urls", "key": "autoscaling-database-url"}
    ]
    name = authentication["metadata"]["name"]
    scaled = of_kind("ScaledObject", example("production"))
    assert triggers(scaled[EXECUTOR])["due-in-ledger"]["authenticationRef"] == {"name": name}


def test_pool_that_does_not_read_the_ledger_needs_no_url() -> None:
    values = example("production")
    values["executors"]["default"]["autoscaling"]["readsLedger"] = False

    assert of_kind("TriggerAuthentication", values) == {}
    assert set(triggers(of_kind("ScaledObject", values)[EXECUTOR])) == {"due", "planned"}


@pytest.mark.parametrize("query", ["due", "planned"])
def test_query_of_prometheus_is_valid(query: str) -> None:
    found = triggers(of_kind("ScaledObject", example("production"))[EXECUTOR])

    promql_parser.parse(found[query]["metadata"]["query"])


async def test_query_of_the_ledger_counts_the_due_runs_of_the_busiest_lane(
    database_url: str,
) -> None:
    query = triggers(of_kind("ScaledObject", example("production"))[EXECUTOR])["due-in-ledger"]
    statement = query["metadata"]["query"]
    auditor = await asyncpg.connect(as_role(database_url, "auditor"))
    owner = await asyncpg.connect(database_url)
    try:
        before = await auditor.fetchval(statement)
        await insert_runs(owner, {"high": 2, "normal": 3})
        await insert_runs(owner, {"low": 9}, pool="reports")
        counted = await auditor.fetchval(statement)
        ticker = await count_due_runs(owner)
    finally:
        await auditor.close()
        await owner.close()

    assert (before, counted) == (0, 3)
    assert counted == max(runs for (pool, _), (runs, _) in ticker.items() if pool == "default")


@pytest.mark.long
def test_objects_of_operators_match_their_schemas() -> None:
    values = example("production")
    found = [each for each in objects(values) if each["kind"] in OF_OPERATORS]

    assert {each["kind"] for each in found} == OF_OPERATORS
    assert schema_errors(found) == []


@pytest.mark.long
def test_schemas_of_operators_reject_bad_objects() -> None:
    monitor = next(each for each in objects(example("production")) if each["kind"] == "PodMonitor")
    (scaled, *_) = of_kind("ScaledObject", example("production")).values()
    monitor["spec"]["podMetricsEndpoints"][0]["interval"] = "15 seconds"
    del scaled["spec"]["triggers"][0]["type"]

    first, second = schema_errors([monitor, scaled])

    assert "interval" in first
    assert "type" in second


def test_upgrade_accepts_the_values_of_the_previous_chart() -> None:
    """Helm passes all values of the former release with `--reuse-values`."""
    previous = yaml.safe_load(Path(__file__).with_name("values-0.1.0.yaml").read_text())
    executors = {
        "reports": {"replicas": 1, "autoscaling": {**AUTOSCALING_OF_PREVIOUS, "minReplicas": 2}}
    }

    found = of_kind("ScaledObject", previous | SECRET | {"executors": executors})

    assert found["executor-reports"]["spec"]["minReplicaCount"] == 2
    assert found["executor-reports"]["spec"]["maxReplicaCount"] == 10
    assert set(triggers(found["executor-reports"])) == {"due", "planned", "due-in-ledger"}


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
