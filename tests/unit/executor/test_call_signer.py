"""The signatures of HTTP calls and AMQP messages, also after redirects, and missing keys."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.fakes.attempts import NINE, attempt
from tests.fakes.lane import NoAmqp, NoHttp

from harebell.contract.message import parse
from harebell.contract.target import AmqpTarget, HttpCall, HttpTarget
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.webhook_signature import (
    HmacKey,
    NotVerified,
    Verified,
    hmac_key,
    hmac_text,
    verify,
)
from harebell.executor.model.completion import is_healthy
from harebell.executor.targets.attempt import AttemptContext
from harebell.executor.targets.call import Targets, call_target
from harebell.executor.targets.call_signer import CallSigner
from harebell.executor.targets.http_request import HttpRequest, redirect_of, request_of
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import TaskTargets
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.signing_keys import SigningKeys

LONG: Final = 10.0  # seconds

KEYS = {"old": hmac_key(bytes(32)), "new": hmac_key(bytes(range(32))), "own": hmac_key(b"x" * 32)}


class Secrets:
    """The keys of the tenant `default`."""

    def read(self, tenant: str, name: str) -> bytes:
        assert tenant == "default"
        return hmac_text(KEYS[name].secret).encode()


def signed(*policy_keys: str, sign: tuple[str, ...] = ()) -> AttemptContext:
    made = attempt()
    run_spec = made.ticket.run_spec.model_copy(update={"sign": list(sign)})
    made = made._replace(ticket=made.ticket.model_copy(update={"run_spec": run_spec}))
    signing = [{"secret": name} for name in policy_keys]
    policies = TenantPolicies.parse({"tenants": {"default": {"signing": signing}}})
    return CallSigner(SigningKeys(Secrets()), lambda: policies).sign(made)


def request(made: AttemptContext, **fields: Any) -> HttpRequest:
    url = "https://a.example/from"
    return request_of(parse(HttpCall, {"url": url, "json": {"a": 1}, **fields}), made)


def result_of(sent: HttpRequest, key: HmacKey) -> Verified | NotVerified:
    return verify(sent.all_headers(), sent.body or b"", keys=[key], now=NINE)


def test_call_has_one_signature_for_each_key_of_the_policy() -> None:
    sent = request(signed("new", "old"))

    run_id = attempt().ticket.run_id
    assert result_of(sent, KEYS["new"]) == Verified(run_id, NINE, "v1")
    assert result_of(sent, KEYS["old"]) == Verified(run_id, NINE, "v1")
    assert isinstance(result_of(sent, KEYS["own"]), NotVerified)


def test_keys_of_the_schedule_replace_those_of_the_policy() -> None:
    sent = request(signed("new", sign=("own",)))

    assert isinstance(result_of(sent, KEYS["own"]), Verified)
    assert isinstance(result_of(sent, KEYS["new"]), NotVerified)


def test_call_without_keys_has_no_signature() -> None:
    headers = request(signed()).all_headers()

    assert not [name for name in headers if name.lower().startswith("webhook-")]


@pytest.mark.parametrize("body", [{"json": {"ü": [1.0]}}, {"text": "ü"}, {"base64": "/w=="}])
def test_signature_covers_the_bytes_of_the_body(body: dict[str, Any]) -> None:
    made = signed("new")
    sent = request_of(parse(HttpCall, {"url": "http://a.example/", **body}), made)

    assert isinstance(result_of(sent, KEYS["new"]), Verified)


@pytest.mark.parametrize("status", [303, 307])
def test_redirect_to_the_same_origin_is_signed_with_its_own_body(status: int) -> None:
    next_request = redirect_of(request(signed("new")), status, "/to")

    assert next_request is not None
    assert (next_request.body is None) == (status == 303)
    assert isinstance(result_of(next_request, KEYS["new"]), Verified)


@pytest.mark.parametrize(("status", "method"), [(303, "POST"), (307, "DELETE")])
def test_redirect_to_another_origin_carries_no_signature(status: int, method: str) -> None:
    signed_request = replace(request(signed("new")), method=method, body=None)

    next_request = redirect_of(signed_request, status, "https://b.example/to")

    assert next_request is not None
    assert result_of(next_request, KEYS["new"]) == NotVerified(
        "missing_header",
        "The message has no header webhook-id, webhook-timestamp, webhook-signature.",
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "secret_missing"), ("", "secret_invalid"), ("swordfish", "signing_key_invalid")],
)
async def test_call_without_its_key_fails_before_it_is_sent_and_is_retried(
    tmp_path: Path, content: str | None, code: str
) -> None:
    (tmp_path / "default").mkdir()
    if content is not None:
        (tmp_path / "default" / "new").write_text(content)
    files = SecretFiles(tmp_path)
    policies = TenantPolicies.parse({"tenants": {"default": {"signing": [{"secret": "new"}]}}})
    targets = Targets(
        http=NoHttp(),
        amqp=NoAmqp(),
        task=TaskTargets({}, threads=1),
        secrets=SecretResolver(files),
        signer=CallSigner(SigningKeys(files), lambda: policies),
    )
    http = parse(HttpTarget, {"http": {"url": "http://a.example/"}})
    amqp = parse(AmqpTarget, {"amqp": {"exchange": "orders"}})

    for target in (http, amqp):
        outcome = await call_target(target, attempt(), targets, seconds=LONG)
        assert isinstance(outcome, Failure)
        assert (outcome.code, outcome.retryable, is_healthy(outcome)) == (code, True, None)
        assert "swordfish" not in outcome.message
    targets.task.close()
