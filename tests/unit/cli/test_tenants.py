"""`harebell tenants check`, which needs no broker."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import CommandLine

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
