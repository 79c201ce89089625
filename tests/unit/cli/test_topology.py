"""`harebell topology definitions` and `manifests`, which need no broker."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.conftest import CommandLine

from harebell.messaging.topology.bus import SYSTEM


def entry_of_user(definitions: dict[str, Any], part: str, user: str) -> dict[str, Any]:
    field = "name" if part == "users" else "user"
    (entry,) = (each for each in definitions[part] if each[field] == user)
    return dict(entry)


def test_definitions_contain_everything_that_services_declare(cli: CommandLine) -> None:
    definitions = json.loads(cli("topology", "definitions").stdout)

    exchanges = {each["name"] for each in definitions["exchanges"]}
    assert exchanges == {each.name for each in SYSTEM.exchanges}
    arguments = {each["name"]: each["arguments"] for each in definitions["queues"]}
    assert arguments == {each.name: each.arguments() for each in SYSTEM.queues}
    assert len(definitions["bindings"]) == len(SYSTEM.bindings)


def test_definitions_contain_the_work_queues_of_a_pool_and_the_virtual_host(
    cli: CommandLine,
) -> None:
    result = cli("topology", "definitions", "--pool", "gpu", "--vhost", "prod")

    definitions = json.loads(result.stdout)
    work = {each["name"] for each in definitions["queues"] if "gpu" in each["name"]}
    assert work == {f"harebell.work.gpu.{lane}" for lane in ("high", "normal", "low")}
    assert {each["vhost"] for each in definitions["queues"]} == {"prod"}


def test_definitions_permit_no_login_without_a_password(cli: CommandLine) -> None:
    definitions = json.loads(cli("topology", "definitions").stdout)

    assert {each["password_hash"] for each in definitions["users"]} == {""}


def test_definitions_contain_passwords_as_salted_hashes(cli: CommandLine) -> None:
    passwords = json.dumps({"harebell_ticker": "tick"})

    output = cli("topology", "definitions", "--passwords", "-", stdin=passwords).stdout

    user = entry_of_user(json.loads(output), "users", "harebell_ticker")
    stored = base64.b64decode(user["password_hash"])
    assert stored[4:] == hashlib.sha256(stored[:4] + b"tick").digest()
    assert '"tick"' not in output


def test_definitions_limit_the_user_of_a_tenant_to_its_name(cli: CommandLine) -> None:
    definitions = json.loads(cli("topology", "definitions", "--for-tenant", "acme").stdout)

    permission = entry_of_user(definitions, "permissions", "acme")
    assert (permission["configure"], permission["read"]) == ("", r"^(acme\..*)$")
    assert permission["write"] == r"^(harebell\.tenant\.acme)$"
    assert not [each for each in definitions["topic_permissions"] if each["user"] == "acme"]


def test_document_lets_a_tenant_declare_and_gives_it_queues(
    cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: {acme: {declares: true}, initech: {queues: {initech.in: [run.*]}}}")
    arguments = ("topology", "definitions", "--for-tenant", "acme", "--for-tenant", "initech")

    definitions = json.loads(cli(*arguments, "--tenants-file", str(file)).stdout)
    file.write_text("tenants: {initech: {queues: {acme.in: []}}}")
    refused = cli(*arguments, "--tenants-file", str(file))

    rights = [
        entry_of_user(definitions, "permissions", each)["configure"] for each in ("acme", "initech")
    ]
    assert rights == [r"^(acme\..*)$", ""]
    bound = {each["routing_key"] for each in definitions["bindings"]}
    assert "initech.run.*" in bound
    assert refused.exit_code == 2
    assert "tenants.initech.queues" in refused.stderr
    assert "must begin with 'initech.'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "part"),
    [
        (("--pool", "No Pool"), "", "pools[0]: "),
        (("--for-tenant", "harebell"), "", "tenants[0]: "),
        (("--for-tenant", "harebell-reports"), "", "tenants[0]: "),
        (("--for-tenant", "harebell_operator"), "", "tenants[0]: "),
        (("--for-tenant", "amq"), "", "tenants[0]: "),
        (("--for-tenant", "guest"), "", "tenants[0]: "),
        (("--for-tenant", "default"), "", "tenants[0]: "),
        (("--passwords", "-"), '{"stranger": "x"}', "'stranger'"),
        (("--passwords", "-"), "{", "not_json"),
    ],
)
def test_definitions_name_the_invalid_option(
    cli: CommandLine, arguments: tuple[str, str], stdin: str, part: str
) -> None:
    result = cli("topology", "definitions", *arguments, stdin=stdin)

    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr


def test_manifests_are_yaml_documents_without_aliases(cli: CommandLine) -> None:
    arguments = ("--for-tenant", "acme", "--cluster", "bus", "--namespace", "jobs")

    result = cli("topology", "manifests", *arguments, "--with-cluster")

    objects = list(yaml.safe_load_all(result.stdout))
    queues = {each["spec"]["name"] for each in objects if each["kind"] == "Queue"}
    assert queues == {each.name for each in SYSTEM.queues} | {
        "harebell.intake.acme",
        "harebell.queries.acme",
        "harebell.dlq.acme",
        "harebell.undelivered.acme",
    }
    assert objects[0]["kind"] == "RabbitmqCluster"
    assert {each["metadata"]["namespace"] for each in objects} == {"jobs"}
    assert "&id" not in result.stdout
    assert "HAREBELL_TENANTS=acme" in result.stderr


def test_manifests_are_one_list_as_json(cli: CommandLine) -> None:
    printed = json.loads(cli("topology", "manifests", "-o", "json").stdout)

    assert (printed["apiVersion"], printed["kind"]) == ("v1", "List")
    assert {each["kind"] for each in printed["items"]} > {"Queue", "Exchange", "Binding", "Policy"}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--cluster", "My Bus"), "cluster: "),
        (("--namespace", "a.b"), "namespace: "),
        (("--pool", "No Pool"), "pools[0]: "),
        (("--for-tenant", "harebell"), "tenants[0]: "),
    ],
)
def test_manifests_name_the_invalid_option(
    cli: CommandLine, arguments: tuple[str, str], part: str
) -> None:
    result = cli("topology", "manifests", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr


@pytest.mark.requirement("P11")
def test_document_of_tenants_bounds_the_intake_queues_of_the_definitions(
    cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: {acme: {quotas: {queued_bytes: 1MiB}}}")
    arguments = ("topology", "definitions", "--for-tenant", "acme", "--for-tenant", "umbrella")

    definitions = json.loads(cli(*arguments, "--tenants-file", str(file)).stdout)
    policies = definitions["policies"]
    file.write_text("tenants: {acme: {quotas: {queued_bytes: much}}}")
    refused = cli(*arguments, "--tenants-file", str(file))

    bounds = {each["name"]: each["definition"].get("max-length-bytes") for each in policies}
    assert bounds["harebell-tenant-commands-acme"] == 2**20
    assert bounds["harebell-tenant-commands-umbrella"] == 64 * 2**20
    queues = {each["name"] for each in definitions["queues"]}
    assert {each for each in queues if each.startswith("harebell.queries.")} == {
        "harebell.queries.acme",
        "harebell.queries.umbrella",
    }
    assert refused.exit_code == 2
    assert "tenants.acme.quotas.queued_bytes" in refused.stderr


@pytest.mark.requirement("P10")
def test_definitions_name_the_setting_of_the_logins_of_operators(cli: CommandLine) -> None:
    result = cli("topology", "definitions", "--operator", "ann", "--operator", "ben")

    assert "HAREBELL_OPERATORS=harebell_operator_ann,harebell_operator_ben" in result.stderr
