"""The credentials of the compose stack: made once, kept, rotated, and one folder per container."""

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from harebell.connection.amqp import parse_amqp_urls
from harebell.contract.errors import InvalidInput
from harebell.dev.compose_credentials import (
    MASTER,
    OWNERS,
    PASSWORDS,
    SERVICES,
    complete,
    files_of,
    new_password,
    read_options,
    without_rotated,
    write,
)
from harebell.messaging.topology.definitions_file import InstallationOptions
from harebell.runtime.database_url import read_database_url
from harebell.storage.role_passwords import ROLES, read_role_passwords

ONE_TENANT = InstallationOptions(tenants=("acme",))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="Only root gives a file to another user.")


def numbered() -> Iterator[str]:
    for number in count():
        yield f"password-{number}"


@pytest.fixture
def new() -> Iterator[str]:
    return numbered()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in (MASTER, *OWNERS):
        (tmp_path / folder).mkdir()
    return tmp_path


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_complete_gives_each_login_its_own_password(new: Iterator[str]) -> None:
    passwords = complete({}, ONE_TENANT, new.__next__)

    values = [*passwords.servers.values(), *passwords.broker.values(), *passwords.roles.values()]
    assert len(values) == len(set(values))
    assert set(passwords.roles) == set(ROLES)
    assert {"acme", "harebell_operator", "harebell_ticker"} <= passwords.broker.keys()


def test_complete_keeps_passwords_and_makes_only_missing_ones(new: Iterator[str]) -> None:
    first = complete({}, InstallationOptions(), new.__next__)

    second = complete(first.document(), ONE_TENANT, new.__next__)

    assert second.servers == first.servers
    assert second.roles == first.roles
    assert {**second.broker, "acme": None} == {**first.broker, "acme": None}


def test_rotation_replaces_every_password_that_servers_read_again(new: Iterator[str]) -> None:
    first = complete({}, ONE_TENANT, new.__next__)

    second = complete(without_rotated(first.document()), ONE_TENANT, new.__next__)

    assert not set(first.broker.values()) & set(second.broker.values())
    assert not set(first.roles.values()) & set(second.roles.values())
    for name in ("owner", "superuser", "cookie", "grafana"):
        assert second.servers[name] == first.servers[name]


def test_each_service_reads_only_its_own_logins(new: Iterator[str]) -> None:
    passwords = complete({}, ONE_TENANT, new.__next__)

    files = files_of(passwords, ONE_TENANT)

    for service in SERVICES:
        (node,) = parse_amqp_urls(files[service]["amqp-url"])
        assert (node.user, node.password) == (
            f"harebell_{service}",
            passwords.broker[f"harebell_{service}"],
        )
        assert (
            f"//harebell_{service}:{passwords.roles[f'harebell_{service}']}@"
            in (files[service]["database-url"])
        )
        read_database_url(files[service]["database-url"])
        assert files[service].keys() == {"amqp-url", "database-url"}


def test_logins_of_the_first_start_replace_guest_and_contain_no_password(
    new: Iterator[str],
) -> None:
    passwords = complete({}, ONE_TENANT, new.__next__)

    broker = files_of(passwords, ONE_TENANT)["broker"]

    logins = json.loads(broker["logins.json"])
    assert {user["name"] for user in logins["users"]} == set(passwords.broker)
    assert all(user["password_hash"] for user in logins["users"])
    assert "queues" not in logins
    assert not [each for each in passwords.broker.values() if each in broker["definitions.json"]]


@as_root
def test_repeated_write_changes_no_file(root: Path) -> None:
    write(root, ONE_TENANT, rotate=False, new=new_password)
    first = contents(root)

    write(root, ONE_TENANT, rotate=False, new=new_password)

    assert contents(root) == first
    assert len(first) >= len(OWNERS)


@as_root
def test_files_are_readable_for_their_container_only(root: Path) -> None:
    write(root, ONE_TENANT, rotate=False, new=new_password)

    for folder, owner in OWNERS.items():
        for path in (root / folder).iterdir():
            assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (owner, 0o400), path
    assert (root / MASTER / PASSWORDS).stat().st_uid == os.geteuid()


@as_root
def test_call_after_an_interrupted_one_writes_the_files_of_the_kept_passwords(root: Path) -> None:
    (root / "ticker").rmdir()
    with pytest.raises(FileNotFoundError):
        write(root, ONE_TENANT, rotate=False, new=new_password)
    kept = (root / MASTER / PASSWORDS).read_text()
    (root / "ticker").mkdir()

    write(root, ONE_TENANT, rotate=False, new=new_password)

    assert (root / MASTER / PASSWORDS).read_text() == kept
    assert json.loads(kept)["broker"]["harebell_ticker"] in (root / "ticker/amqp-url").read_text()


@as_root
def test_migration_reads_the_passwords_of_the_roles(root: Path) -> None:
    write(root, ONE_TENANT, rotate=False, new=new_password)

    path = root / "migration" / "role-passwords.json"
    passwords = read_role_passwords({"HAREBELL_ROLE_PASSWORDS_FILE": str(path)})

    assert passwords == json.loads((root / MASTER / PASSWORDS).read_text())["roles"]


def test_invalid_tenant_is_rejected_with_its_variable() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_options({"HAREBELL_TENANT_LOGINS": "acme, harebell_ticker"})

    assert caught.value.field == "HAREBELL_TENANT_LOGINS"
    assert "harebell_ticker" in caught.value.reason


def test_empty_variables_mean_no_tenant_and_no_pool() -> None:
    options = read_options({"HAREBELL_TENANT_LOGINS": "", "HAREBELL_POOLS": " "})

    assert options == InstallationOptions()
