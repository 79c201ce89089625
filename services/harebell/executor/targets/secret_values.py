"""Secrets of one attempt: the resolution of references, and the masks of the outcome.

The resolved call exists only during the attempt. No message, row or log contains its secrets: the
outcome of the attempt passes the mask, which replaces each secret that a target has sent back.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar, assert_never
from urllib.parse import quote, unquote

import orjson

from harebell.contract.errors import SecretMissing
from harebell.contract.redaction import REDACTED, is_secret_header
from harebell.contract.secret import REFERENCE_FIELD, SecretRef, is_reference
from harebell.contract.target import (
    AmqpMessage,
    AmqpTarget,
    HttpCall,
    HttpTarget,
    Target,
    TaskCall,
    TaskTarget,
    UserInfo,
    userinfo_of,
)
from harebell.contract.target_headers import RunRef
from harebell.domain.retry import Failure
from harebell.domain.webhook_signature import HMAC_PREFIX, PRIVATE_PREFIX
from harebell.executor.targets.attempt import MAX_EXCERPT, Success, TargetOutcome, excerpt
from harebell.executor.targets.http_request import basic
from harebell.runtime.secret_files import INVALID, SecretFiles

AUTHORIZATION: Final = "Authorization"
MIN_MASKED_LITERAL: Final = 4  # characters; a shorter literal would mask parts of other words
_REFERENCE_START: Final = b'{"secret":"'  # of each reference in compact JSON
_REPLACEMENT: Final = "\ufffd"  # of bytes that an excerpt has cut

T = TypeVar("T", HttpTarget, AmqpTarget, TaskTarget)
Masked: TypeAlias = set[str]


class SecretMask:
    """The texts that the outcome of an attempt must not contain, the longest first."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values if value for form in _forms(value)}
        self._texts = sorted(forms, key=len, reverse=True)

    def apply(self, outcome: TargetOutcome) -> TargetOutcome:
        """Return the outcome with `***` for each secret in its texts."""
        match outcome:
            case Success(status, result):
                return Success(status, None if result is None else excerpt(self.mask(result)))
            case Failure():
                return replace(outcome, message=excerpt(self.mask(outcome.message)))
            case _:
                assert_never(outcome)

    def mask(self, text: str) -> str:
        """Return the text with `***` for each secret, also for one that the excerpt has cut."""
        is_cut = len(text.encode()) > MAX_EXCERPT - len(_REPLACEMENT.encode()) - 1
        for secret in self._texts:
            text = text.replace(secret, REDACTED)
        if not is_cut:
            return text
        beginning = text.rstrip(_REPLACEMENT)
        cut = max((_overlap(beginning, secret) for secret in self._texts), default=0)
        return beginning[: len(beginning) - cut] + REDACTED if cut else text


def _forms(value: str) -> Iterable[str]:
    """Return the forms in which a target may send a text back: plain, in JSON, in a URL."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield quote(value, safe="")


def _overlap(text: str, secret: str) -> int:
    """Return the length of the longest end of the text that is a beginning of the secret."""
    longest = min(len(text), len(secret) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(secret[:n])), 0)


class SecretResolver:
    """The resolution of references with the secrets of a tenant."""

    def __init__(self, files: SecretFiles) -> None:
        self._files = files

    def resolve(self, target: Target, tenant: str) -> tuple[Target, SecretMask | None]:
        """Return the target with its secrets, and the mask of its outcome.

        A target without a reference and without a literal secret is returned unchanged, without a
        mask. Raise `SecretMissing`.
        """
        match target:
            case HttpTarget():
                return self._http(target, tenant)
            case AmqpTarget():
                return self._amqp(target, tenant)
            case TaskTarget():
                return self._task(target, tenant)
            case _:
                assert_never(target)

    def _http(self, target: HttpTarget, tenant: str) -> tuple[HttpTarget, SecretMask | None]:
        call = target.http
        if not call.headers and call.userinfo is None and "@" not in call.url:
            return target, None
        masked: Masked = set()
        headers = self._headers(call.headers, tenant, masked)
        if call.userinfo is not None:
            headers = {**headers, AUTHORIZATION: self._basic(call.userinfo, tenant, masked)}
        _mask_userinfo_of_url(call, masked)
        if not masked:
            return target, None
        update = {"headers": headers, "userinfo": None}
        return target.model_copy(update={"http": call.model_copy(update=update)}), SecretMask(
            masked
        )

    def _amqp(self, target: AmqpTarget, tenant: str) -> tuple[AmqpTarget, SecretMask | None]:
        message: AmqpMessage = target.amqp
        if not message.headers:
            return target, None
        masked: Masked = set()
        headers = self._headers(message.headers, tenant, masked)
        if not masked:
            return target, None
        resolved = message.model_copy(update={"headers": headers})
        return target.model_copy(update={"amqp": resolved}), SecretMask(masked)

    def _task(self, target: TaskTarget, tenant: str) -> tuple[TaskTarget, SecretMask | None]:
        call: TaskCall = target.task
        if not call.args or _REFERENCE_START not in orjson.dumps(call.args):
            return target, None
        masked: Masked = set()
        args = self._json(call.args, tenant, masked)
        if not masked:
            return target, None
        resolved = call.model_copy(update={"args": args})
        return target.model_copy(update={"task": resolved}), SecretMask(masked)

    def _headers(
        self, headers: Mapping[str, Any], tenant: str, masked: Masked
    ) -> Mapping[str, Any]:
        """Return the headers with their secrets, and add the texts to mask to `masked`."""
        resolved: dict[str, Any] = {}
        for name, value in headers.items():
            if isinstance(value, SecretRef):
                resolved[name] = self._text(value, tenant, masked)
            elif is_secret_header(name) and not isinstance(value, RunRef):
                _mask_literal(str(value), masked)
        return {**headers, **resolved} if resolved else headers

    def _basic(self, userinfo: UserInfo, tenant: str, masked: Masked) -> str:
        """Return the value of the header `Authorization`. Raise `SecretMissing`."""
        user = self._part(userinfo.user, tenant, masked)
        password = self._part(userinfo.password, tenant, masked)
        if ":" in user:
            reason = "The secret that names a user must not contain a colon."
            raise SecretMissing(reason, code=INVALID)
        header = basic(user, password)
        masked.add(header.removeprefix("Basic "))
        return header

    def _part(self, part: str | SecretRef, tenant: str, masked: Masked) -> str:
        if isinstance(part, SecretRef):
            return self._text(part, tenant, masked)
        _mask_literal(part, masked)
        return part

    def _json(self, value: Any, tenant: str, masked: Masked) -> Any:  # noqa: ANN401  # JSON
        if isinstance(value, dict):
            if is_reference(value) and isinstance(value[REFERENCE_FIELD], str):
                return self._argument(value[REFERENCE_FIELD], tenant, masked)
            return {name: self._json(item, tenant, masked) for name, item in value.items()}
        if isinstance(value, list):
            return [self._json(item, tenant, masked) for item in value]
        return value

    def _argument(self, name: str, tenant: str, masked: Masked) -> str:
        """Return a secret for a task, which may have several lines."""
        text = self._read(tenant, name)
        masked.add(text)
        masked.update(line for line in text.splitlines() if len(line) >= MIN_MASKED_LITERAL)
        return text

    def _text(self, reference: SecretRef, tenant: str, masked: Masked) -> str:
        """Return a secret for a header. A control character would end the header."""
        text = self._read(tenant, reference.secret)
        if not text.isprintable():
            raise _unusable(reference.secret)
        masked.add(text)
        return text

    def _read(self, tenant: str, name: str) -> str:
        """Return a secret as text. Raise `SecretMissing`, also for a signing key.

        A tenant with a signing key could sign calls that Harebell never made.
        """
        try:
            text = self._files.read(tenant, name).decode()
        except UnicodeDecodeError:
            raise _unusable(name) from None
        if text.startswith((HMAC_PREFIX, PRIVATE_PREFIX)):
            reason = f"The secret {name!r} is a signing key, which no call may contain."
            raise SecretMissing(reason, code=INVALID)
        return text


def _unusable(name: str) -> SecretMissing:
    reason = f"The secret {name!r} must be printable UTF-8 text in one line."
    return SecretMissing(reason, code=INVALID)


def _mask_userinfo_of_url(call: HttpCall, masked: Masked) -> None:
    if (userinfo := userinfo_of(call.url)) is not None:
        user, _, password = userinfo.partition(":")
        sent = (unquote(user), unquote(password))
        for secret in (userinfo, password, ":".join(sent).removesuffix(":"), sent[1], basic(*sent)):
            _mask_literal(secret, masked)


def _mask_literal(value: str, masked: Masked) -> None:
    """Mask a literal secret, also without the scheme of an `Authorization`."""
    for text in (value, value.rpartition(" ")[2]):
        if len(text) >= MIN_MASKED_LITERAL:
            masked.add(text)
