"""The passwords of the database roles: one for each role, and verifiers instead of clear text."""

import json
from pathlib import Path

import pytest

from harebell.contract.errors import InvalidInput
from harebell.storage.role_passwords import ROLES, read_role_passwords, scram_verifier

FILE = "HAREBELL_ROLE_PASSWORDS_FILE"


def test_verifier_has_the_form_of_postgresql_without_the_password() -> None:
    salt = bytes.fromhex("5b6d99689d123541a9d40ff5b6cc4d3d")

    verifier = scram_verifier("pencil", salt)

    kind, parameters, keys = verifier.split("$")
    assert (kind, parameters) == ("SCRAM-SHA-256", "4096:W22ZaJ0SNUGp1A/1tsxNPQ==")
    assert "pencil" not in keys


def test_file_names_the_password_of_each_role(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text(json.dumps({"harebell_intake": "own"}))

    assert read_role_passwords({FILE: str(file)}) == {"harebell_intake": "own"}
    both = read_role_passwords({FILE: str(file), "HAREBELL_ROLE_PASSWORD": "common"})
    assert both == {**dict.fromkeys(ROLES, "common"), "harebell_intake": "own"}
    assert read_role_passwords({}) == {}


@pytest.mark.parametrize(
    "content", ["[]", '{"postgres": "x"}', '{"harebell_intake": 1}', '{"harebell_intake": ""}', "x"]
)
def test_invalid_file_is_rejected(tmp_path: Path, content: str) -> None:
    file = tmp_path / "passwords"
    file.write_text(content)

    with pytest.raises(InvalidInput):
        read_role_passwords({FILE: str(file)})


@pytest.mark.parametrize("password", ["", "p\u00e4ss", "a\nb"])
def test_password_must_be_printable_ascii(password: str) -> None:
    with pytest.raises(InvalidInput, match="printable ASCII") as caught:
        read_role_passwords({"HAREBELL_ROLE_PASSWORD": password})

    assert not password or password not in caught.value.reason
