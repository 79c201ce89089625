"""Signing keys from files: parsed once, replaced after a rotation, and errors that name the key."""

from pathlib import Path

import pytest

from harebell.contract.errors import SecretMissing, SigningKeyInvalid
from harebell.domain.webhook_signature import hmac_key, hmac_text, private_text
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.signing_keys import SigningKeys

FIRST, SECOND = bytes(32), bytes(range(32))


class Secrets:
    """Secrets in memory, by tenant and name."""

    def __init__(self, **values: bytes) -> None:
        self.values = values

    def read(self, tenant: str, name: str) -> bytes:
        return self.values[f"{tenant}_{name}"]


def test_key_is_parsed_once_until_its_file_changes() -> None:
    secrets = Secrets(acme_a=private_text(FIRST).encode())
    keys = SigningKeys(secrets)

    [first] = keys.read("acme", ["a"])
    [again] = keys.read("acme", ["a"])
    secrets.values["acme_a"] = hmac_text(SECOND).encode()
    [rotated] = keys.read("acme", ["a"])

    assert again is first
    assert rotated == hmac_key(SECOND)


def test_keys_have_the_order_of_their_names_and_belong_to_one_tenant() -> None:
    values = {"acme_a": FIRST, "acme_b": SECOND, "umbrella_a": SECOND}
    keys = SigningKeys(Secrets(**{name: hmac_text(raw).encode() for name, raw in values.items()}))

    assert keys.read("acme", ["b", "a"]) == [hmac_key(SECOND), hmac_key(FIRST)]
    assert keys.read("umbrella", ["a"]) == [hmac_key(SECOND)]


@pytest.mark.parametrize("content", [b"swordfish", b"whsec_%%", b"\xff\xfe"])
def test_malformed_key_is_named_without_its_content(content: bytes) -> None:
    keys = SigningKeys(Secrets(acme_a=content))

    with pytest.raises(SigningKeyInvalid, match="The secret 'a' is no signing key") as caught:
        keys.read("acme", ["a"])

    assert "swordfish" not in caught.value.reason


def test_one_missing_key_of_two_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "a").write_text(hmac_text(FIRST))
    keys = SigningKeys(SecretFiles(tmp_path))

    assert keys.read("acme", ["a"]) == [hmac_key(FIRST)]
    with pytest.raises(SecretMissing, match="'b'"):
        keys.read("acme", ["a", "b"])
