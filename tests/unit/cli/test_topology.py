"""`harebell topology definitions`: a file for RabbitMQ, made without one."""

import base64
import hashlib
import json
from typing import Any

from tests.unit.cli.conftest import CommandLine

from harebell.messaging.topology.bus import SYSTEM


def of_user(made: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    field = "name" if part == "users" else "user"
    (found,) = (each for each in made[part] if each[field] == name)
    return dict(found)


def test_everything_that_services_would_declare_is_in_it(cli: CommandLine) -> None:
    made = json.loads(cli("topology", "definitions").stdout)

    assert {each["name"] for each in made["exchanges"]} == {each.name for each in SYSTEM.exchanges}
    arguments = {each["name"]: each["arguments"] for each in made["queues"]}
    assert arguments == {each.name: each.arguments() for each in SYSTEM.queues}
    assert len(made["bindings"]) == len(SYSTEM.bindings)


def test_another_pool_brings_its_lanes_and_another_host_its_name(cli: CommandLine) -> None:
    made = json.loads(cli("topology", "definitions", "--pool", "gpu", "--vhost", "prod").stdout)

    work = {each["name"] for each in made["queues"] if "gpu" in each["name"]}
    assert work == {f"harebell.work.gpu.{lane}" for lane in ("high", "normal", "low")}
    assert {each["vhost"] for each in made["queues"]} == {"prod"}


def test_nobody_can_log_in_without_a_password(cli: CommandLine) -> None:
    made = json.loads(cli("topology", "definitions").stdout)

    assert {each["password_hash"] for each in made["users"]} == {""}


def test_passwords_are_kept_as_the_brokers_salted_hashes(cli: CommandLine) -> None:
    given = json.dumps({"harebell_ticker": "tick"})

    told = cli("topology", "definitions", "--passwords", "-", stdin=given).stdout

    kept = base64.b64decode(of_user(json.loads(told), "users", "harebell_ticker")["password_hash"])
    assert kept[4:] == hashlib.sha256(kept[:4] + b"tick").digest()
    assert '"tick"' not in told


def test_a_tenants_user_is_fenced_in_by_its_name(cli: CommandLine) -> None:
    made = json.loads(cli("topology", "definitions", "--for-tenant", "acme").stdout)

    assert of_user(made, "permissions", "acme")["configure"] == r"^(acme\..*)$"
    fenced = {each["exchange"]: each["write"] or each["read"] for each in made["topic_permissions"]}
    assert fenced == dict.fromkeys(
        ("harebell.commands", "harebell.queries", "harebell.events"), r"^acme\..*"
    )


def test_what_cannot_be_is_refused_with_its_name(cli: CommandLine) -> None:
    for words, stdin, complaint in (
        (("--pool", "No Pool"), "", "pools[0]: "),
        (("--for-tenant", "harebell"), "", "tenants[0]: harebell is the name of"),
        (("--passwords", "-"), '{"nobody": "x"}', "there is no user 'nobody'"),
        (("--passwords", "-"), "{", "not_json"),
    ):
        told = cli("topology", "definitions", *words, stdin=stdin)
        assert (told.exit_code, told.stdout) == (2, "")
        assert complaint in told.stderr
