"""Standard Webhooks: known signatures, the forms of keys, and calls that fail the verification."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.errors import SigningKeyInvalid
from harebell.domain.webhook_signature import (
    HmacKey,
    MessageSigner,
    NotVerified,
    PrivateKey,
    SigningKey,
    VerificationKey,
    Verified,
    hmac_key,
    hmac_text,
    message_id_of,
    parse_signing_key,
    parse_verification_key,
    private_key,
    private_text,
    verify,
)

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
SECOND = int(NOW.timestamp())
BODY = b'{"a":1}'
SECRET, OTHER_SECRET = bytes(range(32)), bytes(range(1, 33))
HMAC, ED25519 = hmac_key(SECRET), private_key(SECRET)
SIGNER = MessageSigner([HMAC, ED25519], "run@1", SECOND)


def code_of(result: Verified | NotVerified) -> str:
    return result.code if isinstance(result, NotVerified) else "verified"


def check(
    headers: dict[str, str], body: bytes = BODY, *keys: VerificationKey, now: datetime = NOW
) -> str:
    return code_of(verify(headers, body, keys=keys or (HMAC,), now=now))


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    ("key", "message_id", "second", "body", "expected"),
    [
        (  # of the README of the reference implementations
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (  # of the tests of the reference implementation in Go
            "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==",
        ),
    ],
)
def test_signature_equals_that_of_the_reference_implementations(
    key: str, message_id: str, second: int, body: bytes, expected: str
) -> None:
    signer = MessageSigner([parse_signing_key(key)], message_id, second)

    assert signer.headers(body) == {
        "webhook-id": message_id,
        "webhook-timestamp": str(second),
        "webhook-signature": expected,
    }


@given(st.binary(max_size=200))
def test_each_key_verifies_the_body_that_both_keys_have_signed(body: bytes) -> None:
    headers = SIGNER.headers(body)

    assert verify(headers, body, keys=[HMAC], now=NOW) == Verified("run@1", NOW, "v1")
    public = ED25519.public_key()
    assert verify(headers, body, keys=[public], now=NOW) == Verified("run@1", NOW, "v1a")


def test_altered_id_time_or_body_and_a_foreign_key_fail() -> None:
    headers = SIGNER.headers(BODY)

    assert check(headers) == "verified"
    assert check({name.title(): value for name, value in headers.items()}) == "verified"
    for key in (HMAC, ED25519.public_key()):
        assert check(headers, BODY + b" ", key) == "no_matching_signature"
        assert check({**headers, "webhook-id": "run@2"}, BODY, key) == "no_matching_signature"
        later = {**headers, "webhook-timestamp": str(SECOND + 1)}
        assert check(later, BODY, key) == "no_matching_signature"
    foreign = private_key(OTHER_SECRET).public_key()
    assert check(headers, BODY, hmac_key(OTHER_SECRET), foreign) == "no_matching_signature"


def test_signature_of_one_version_does_not_verify_as_the_other() -> None:
    headers = SIGNER.headers(BODY)
    v1, v1a = (each.partition(",")[2] for each in headers["webhook-signature"].split(" "))

    swapped = {**headers, "webhook-signature": f"v1a,{v1} v1,{v1a}"}

    assert check(swapped, BODY, HMAC, ED25519.public_key()) == "no_matching_signature"


@pytest.mark.parametrize(
    ("age", "expected"),
    [(300, "verified"), (301, "too_old"), (-300, "verified"), (-301, "too_new")],
)
def test_call_must_be_within_the_tolerance(age: int, expected: str) -> None:
    assert check(SIGNER.headers(BODY), now=NOW + timedelta(seconds=age)) == expected


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_call_without_one_of_the_headers_is_not_verified(name: str) -> None:
    headers = SIGNER.headers(BODY)

    assert check({each: headers[each] for each in headers if each != name}) == "missing_header"
    assert check({**headers, name: ""}) == "missing_header"


@pytest.mark.parametrize("second", ["x", "-1", "1.5", "٣", "9" * 30])
def test_timestamp_that_is_no_second_is_invalid(second: str) -> None:
    assert check({**SIGNER.headers(BODY), "webhook-timestamp": second}) == "invalid_timestamp"


@pytest.mark.parametrize("text", ["v1", "v1,", "v1,é", "v1,%%%", "v1,AAAA", ","])
def test_malformed_signature_does_not_match(text: str) -> None:
    headers = SIGNER.headers(BODY)
    keys = (HMAC, ED25519.public_key())

    assert check({**headers, "webhook-signature": text}, BODY, *keys) == "no_matching_signature"
    both = f"{text} {headers['webhook-signature']}"
    assert check({**headers, "webhook-signature": both}, BODY, *keys) == "verified"


def test_texts_of_keys_return_the_keys() -> None:
    public = ED25519.public_key()

    assert parse_signing_key(f" {hmac_text(SECRET)}\n") == HMAC
    private = parse_signing_key(private_text(SECRET))
    assert isinstance(private, PrivateKey)
    assert private.public_key().text() == public.text()
    for text in (public.text(), private_text(SECRET)):
        key = parse_verification_key(text)
        assert check(SIGNER.headers(BODY), BODY, key) == "verified"
    assert parse_verification_key(hmac_text(SECRET)) == HMAC


def test_private_key_may_end_with_its_own_public_key_only() -> None:
    public = ED25519.public_key().key.public_bytes_raw()

    both = private_key(SECRET + public)

    assert both.public_key().text() == ED25519.public_key().text()
    with pytest.raises(SigningKeyInvalid, match="its own public key"):
        private_key(OTHER_SECRET + public)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin with"),
        ("c2VjcmV0", "must begin with"),
        (ED25519.public_key().text(), "must begin with"),
        ("whsec_%%", "must be base64"),
        ("whsec_é", "must be base64"),
        ("whsec_" + base64.b64encode(bytes(23)).decode(), "24 to 64 bytes, not 23"),
        ("whsec_" + base64.b64encode(bytes(65)).decode(), "24 to 64 bytes, not 65"),
        ("whsk_" + base64.b64encode(bytes(31)).decode(), "32 bytes, not 31"),
    ],
)
def test_text_that_is_no_signing_key_has_a_reason_without_its_content(
    text: str, reason: str
) -> None:
    with pytest.raises(SigningKeyInvalid, match=reason) as caught:
        parse_signing_key(text)

    secret = text.partition("_")[2] or text
    assert not secret or secret not in caught.value.reason


def test_public_key_must_have_its_length() -> None:
    with pytest.raises(SigningKeyInvalid, match="32 bytes, not 3"):
        parse_verification_key("whpk_AAAA")


@pytest.mark.parametrize("key", [HMAC, ED25519])
def test_representation_of_a_key_omits_the_secret(key: SigningKey) -> None:
    shown = repr(replace(SIGNER, keys=[key]))

    assert repr(SECRET) not in shown
    assert hmac_text(SECRET).partition("_")[2] not in shown


def test_message_ids_of_events_contain_no_point_and_stay_different() -> None:
    ids = ["a/dlq.spike", "a/dlq%2Espike", "a/dlq-spike", "é\n.x", "plain@1:2/3"]

    made = [message_id_of(each) for each in ids]

    assert len(set(made)) == len(ids)
    assert not any("." in each or not each.isascii() or not each.isprintable() for each in made)
    assert made[-1] == "plain@1:2/3"


def test_keys_of_equal_bytes_are_equal() -> None:
    assert hmac_key(SECRET) == HmacKey(SECRET)
