"""`harebell tenants`: `check`, which needs no broker, and `usage`."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker

DOCUMENT = """
defaults:
  pools: [shared]
tenants:
  acme:
    logins: [acme, ci]
    exchanges: [orders]
    quotas: {schedules: 5}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tenants.yaml"
    path.write_text(DOCUMENT)
    return path


@pytest.mark.requirement("P11")
def test_valid_document_shows_what_each_tenant_may_use(cli: CommandLine, file: Path) -> None:
    result = cli("tenants", "check", str(file), "-o", "json")
    acme, others = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (acme["tenant"], others["tenant"]) == ("acme", "(others)")
    assert acme["logins"] == ["acme", "ci"]
    assert acme["exchanges"] == ["acme.*", "orders"]
    assert acme["pools"] == others["pools"] == ["shared"]
    assert (acme["quotas"]["schedules"], others["quotas"]["schedules"]) == (5, 10_000)


def test_one_tenant_is_printed_also_if_the_document_omits_it(cli: CommandLine, file: Path) -> None:
    result = cli("tenants", "check", str(file), "--tenant", "umbrella", "-o", "json")

    policy = json.loads(result.stdout)
    assert (policy["tenant"], policy["logins"]) == ("umbrella", ["umbrella"])
    assert policy["exchanges"] == ["umbrella.*"]


def test_table_has_one_line_for_each_tenant(cli: CommandLine, file: Path) -> None:
    lines = cli("tenants", "check", str(file)).stdout.splitlines()

    assert lines[0].split()[0] == "tenant"
    assert [line.split()[0] for line in lines[1:]] == ["acme", "(others)"]
    assert "80, 443" in lines[1]


@pytest.mark.requirement("P11")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tenants:\n  acme:\n    pool: [x]\n", "line 3, tenants.acme.pool: "),
        ("tenants:\n  acme:\n    hosts: ['a:80']\n", "line 3, tenants.acme.hosts[0]: "),
        ("tenants:\n  acme: &a {}\n  other: *a\n", "line 3"),
        ("tenants: [", "line 2"),
    ],
)
def test_error_names_the_line_and_the_field(
    cli: CommandLine, file: Path, text: str, expected: str
) -> None:
    file.write_text(text)

    result = cli("tenants", "check", str(file))

    assert result.exit_code == 1
    assert expected in result.stderr
    assert str(file) in result.stderr
    assert result.stdout == ""


def test_missing_file_is_wrong_usage(cli: CommandLine, tmp_path: Path) -> None:
    assert cli("tenants", "check", str(tmp_path / "absent.yaml")).exit_code == 2


USAGE = {
    "tenant": "acme",
    "quotas": [
        {"quota": "schedules", "limit": 200_000, "used": 100_000, "is_at_least": True},
        {"quota": "puts_per_second", "limit": 20.0, "used": 0.25, "refused": 7},
        {"quota": "queued_bytes", "limit": 64 * 2**20},
        {"quota": "dead_letters", "used": 3},
    ],
    "refusals": [{"code": "not_allowed", "rule": "pools", "refused": 2}],
}


@pytest.mark.requirement("P11")
def test_usage_lists_each_quota_and_each_refusal_in_one_line(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: {"ok": True, "items": [USAGE]}

    result = cli("--tenant", "acme", "tenants", "usage")

    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["acme", "schedules", "200000", "100000", "or", "more", "0"],
        ["acme", "puts_per_second", "20", "0.25", "7"],
        ["acme", "queued_bytes", "64MiB", "-", "0"],
        ["acme", "dead_letters", "-", "3", "0"],
        ["acme", "pools", "-", "-", "2"],
    ]
    assert (broker.requests[0].tenant, broker.requests[0].verb) == ("acme", "tenant.usage")


def test_usage_of_all_tenants_follows_the_cursor_of_the_operations_tenant(
    cli: CommandLine, broker: FakeBroker
) -> None:
    pages = iter(
        [
            {"ok": True, "items": [USAGE], "next": "acme"},
            {"ok": True, "items": [USAGE | {"tenant": "umbrella"}]},
        ]
    )
    broker.respond = lambda _: next(pages)

    result = cli("tenants", "usage", "--all", "-o", "json")

    assert [each["tenant"] for each in json.loads(result.stdout)] == ["acme", "umbrella"]
    assert [(each.tenant, each.body) for each in broker.requests] == [
        ("harebell", {"limit": 50}),
        ("harebell", {"limit": 50, "after": "acme"}),
    ]
