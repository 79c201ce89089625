"""The objects of RabbitMQ's operators contain the same topology as the definitions file."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.messaging.topology.definitions_file import definitions_file
from harebell.messaging.topology.operator_manifests import (
    ManifestOptions,
    object_name,
    operator_manifests,
    user_object_name,
)

if TYPE_CHECKING:
    from jsonschema.validators import Draft202012Validator  # takes 2 s

SCHEMAS: Final = yaml.safe_load(Path(__file__).with_name("operator_schemas.yaml").read_text())
KUBERNETES: Final = "1.34"
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of RFC 1123
INSTALLATIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"vhost": "prod", "pools": ["reports", "gpu_a"], "tenants": ["acme", "acme_ci", "acme-ci"]},
    {"vhost": "Prod/EU", "cluster": "bus", "namespace": "jobs", "has_cluster": True},
)
TENANTS: Final = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)


def salt(size: int) -> bytes:
    return bytes(range(size))


def manifests(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    return operator_manifests(parse(ManifestOptions, dict(options)), salt)


def specs(objects: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each["spec"] for each in objects if each["kind"] == kind]


@cache
def validator_of(kind: str) -> "Draft202012Validator":
    """Return the validator of a kind of objects, which permits only the documented fields."""
    from jsonschema.validators import Draft202012Validator  # noqa: PLC0415  # takes 2 s

    spec = {"type": "object", "additionalProperties": False} | SCHEMAS["kinds"][kind]
    schema = {
        "definitions": SCHEMAS["definitions"],
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": "rabbitmq.com/v1beta1"},
            "kind": {"const": kind},
            "metadata": {"type": "object", "required": ["name"]},
            "spec": spec,
        },
    }
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def definitions_from(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the definitions file of the topology that the operators create from the objects."""
    secrets = {
        each["metadata"]["name"]: each["stringData"] for each in objects if each["kind"] == "Secret"
    }
    logins = {
        each["metadata"]["name"]: secrets[each["spec"]["importCredentialsSecret"]["name"]]
        for each in objects
        if each["kind"] == "User"
    }
    users = [each for each in objects if each["kind"] == "User"]
    limited = [each for each in specs(objects, "Vhost") if "limits" in each]
    return {
        "vhosts": [{"name": each["name"]} for each in specs(objects, "Vhost")],
        "users": [
            {
                "name": logins[each["metadata"]["name"]]["username"],
                "has_password": bool(logins[each["metadata"]["name"]]["passwordHash"]),
                "tags": each["spec"].get("tags", []),
                "limits": {
                    f"max-{name}": value for name, value in each["spec"].get("limits", {}).items()
                },
            }
            for each in users
        ],
        "permissions": [
            {
                "user": logins[each["userReference"]["name"]]["username"],
                "vhost": each["vhost"],
                **each["permissions"],
            }
            for each in specs(objects, "Permission")
        ],
        "topic_permissions": [
            {
                "user": logins[each["userReference"]["name"]]["username"],
                "vhost": each["vhost"],
                **each["permissions"],
            }
            for each in specs(objects, "TopicPermission")
        ],
        "exchanges": [
            {
                "name": each["name"],
                "vhost": each["vhost"],
                "type": each["type"],
                "durable": each["durable"],
                "auto_delete": each["autoDelete"],
                "internal": False,
                "arguments": each.get("arguments", {}),
            }
            for each in specs(objects, "Exchange")
        ],
        "queues": [
            {
                "name": each["name"],
                "vhost": each["vhost"],
                "durable": each["durable"],
                "auto_delete": each["autoDelete"],
                "arguments": {"x-queue-type": each["type"], **each["arguments"]},
            }
            for each in specs(objects, "Queue")
        ],
        "bindings": [
            {
                "source": each["source"],
                "vhost": each["vhost"],
                "destination": each["destination"],
                "destination_type": each["destinationType"],
                "routing_key": each["routingKey"],
                "arguments": each.get("arguments", {}),
            }
            for each in specs(objects, "Binding")
        ],
        "policies": [
            {
                "name": each["name"],
                "vhost": each["vhost"],
                "pattern": each["pattern"],
                "apply-to": each["applyTo"],
                "priority": each["priority"],
                "definition": each["definition"],
            }
            for each in specs(objects, "Policy")
        ],
        "parameters": [
            {
                "component": "vhost-limits",
                "vhost": each["name"],
                "name": "limits",
                "value": {f"max-{name}": value for name, value in each["limits"].items()},
            }
            for each in limited
        ],
    }


def expected_definitions(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions file without the two parts that no object contains.

    A virtual host has a description, and the operator chooses the algorithm of a hash.
    """
    definitions = definitions_file(parse(ManifestOptions, dict(options)), salt)
    definitions["vhosts"] = [{"name": each["name"]} for each in definitions["vhosts"]]
    for user in definitions["users"]:
        del user["hashing_algorithm"]
        user["has_password"] = bool(user.pop("password_hash"))
    return definitions


@pytest.mark.parametrize("options", INSTALLATIONS)
def test_manifests_contain_the_whole_definitions_file(options: Mapping[str, Any]) -> None:
    passwords = {"passwords": {"harebell_ticker": "tick"}}

    assert definitions_from(manifests({**options, **passwords})) == expected_definitions(
        {**options, **passwords}
    )


@pytest.mark.parametrize("options", INSTALLATIONS)
def test_each_object_has_only_documented_fields(options: Mapping[str, Any]) -> None:
    import kubernetes_validate  # noqa: PLC0415  # builds 39 parsers, which takes seconds

    for each in manifests(options):
        if each["kind"] == "Secret":
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        else:
            validator_of(each["kind"]).validate(each)


def test_schema_rejects_an_object_with_another_field() -> None:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415  # takes 2 s

    (vhost,) = (each for each in manifests({}) if each["kind"] == "Vhost")
    vhost["spec"]["description"] = "Harebell"

    with pytest.raises(ValidationError, match="description"):
        validator_of("Vhost").validate(vhost)


@pytest.mark.parametrize("options", INSTALLATIONS)
def test_each_object_has_a_valid_name_that_no_other_object_of_its_kind_has(
    options: Mapping[str, Any],
) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests(options)]

    assert len(set(names)) == len(names)
    assert [name for _, name in names if not OBJECT_NAME.fullmatch(name)] == []


def test_objects_of_two_virtual_hosts_have_different_names() -> None:
    first, second = (
        {
            (each["kind"], each["metadata"]["name"])
            for each in manifests({"vhost": vhost})
            if each["kind"] not in {"User", "Secret"}  # users belong to the cluster
        }
        for vhost in ("prod", "test")
    )

    assert first & second == set()


@given(TENANTS, TENANTS)
@example("a-b", "a_b")
@example("a_", "a-")
def test_different_tenants_have_objects_with_different_valid_names(one: str, other: str) -> None:
    names = {object_name("harebell.work", each, "high") for each in (one, other)}

    assert len(names) == len({one, other})
    assert all(OBJECT_NAME.fullmatch(name) and ".-" not in name for name in names)


def test_name_of_an_object_is_readable_when_kubernetes_permits_the_name() -> None:
    assert object_name("harebell.delay.001500") == "harebell.delay.001500"
    assert user_object_name("harebell_dlq_inspector") == "harebell-dlq-inspector"
    assert re.fullmatch(r"acme-ci-[0-9a-f]{8}", user_object_name("acme_ci"))


def test_removed_object_deletes_no_message() -> None:
    objects = manifests({"tenants": ["acme"]})

    policies = {
        kind: {spec["deletionPolicy"] for spec in specs(objects, kind)}
        for kind in ("Queue", "Vhost")
    }
    assert policies == {"Queue": {"retain"}, "Vhost": {"retain"}}


def test_secret_contains_the_salted_hash_and_not_the_password() -> None:
    objects = manifests({"passwords": {"harebell_ticker": "tick"}})

    (secret,) = (each for each in objects if each["metadata"]["name"] == "harebell-ticker-login")
    stored = base64.b64decode(secret["stringData"]["passwordHash"])
    assert stored[4:] == hashlib.sha512(stored[:4] + b"tick").digest()
    assert "tick" not in secret["stringData"].values()


def test_objects_refer_to_the_cluster_in_the_namespace() -> None:
    objects = manifests({"cluster": "bus", "namespace": "jobs", "has_cluster": True})

    assert {each["metadata"]["namespace"] for each in objects} == {"jobs"}
    assert specs(objects, "RabbitmqCluster")[0]["replicas"] == 3
    references = {
        each["spec"]["rabbitmqClusterReference"]["name"]
        for each in objects
        if each["kind"] not in {"Secret", "RabbitmqCluster"}
    }
    assert references == {"bus"}


@pytest.mark.parametrize(
    ("field", "value"), [("cluster", "Bus"), ("cluster", ""), ("namespace", "a.b")]
)
def test_name_that_kubernetes_does_not_permit_is_refused(field: str, value: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse(ManifestOptions, {field: value})

    assert raised.value.field == field
