"""Secrets of one attempt: the resolution of references, and the short excerpts of the outcome.

The resolved call exists only during the attempt. No message, row or log contains its secrets: the
outcome contains so little of the answer that no secret fits in a usual encoding.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar, assert_never
from urllib.parse import unquote

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
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http_request import basic
from harebell.runtime.secret_files import INVALID, SecretFiles

AUTHORIZATION: Final = "Authorization"
MAX_SHORT_EXCERPT: Final = 64  # characters
MIN_LITERAL: Final = 4  # characters; a shorter literal is no secret
ELLIPSIS: Final = "…"  # after an excerpt that is cut
_REFERENCE_START: Final = b'{"secret":"'  # of each reference in compact JSON

T = TypeVar("T", HttpTarget, AmqpTarget, TaskTarget)
Values: TypeAlias = set[str]  # of the secrets of one call


class UsedSecrets:
    """The secrets of one call, which bound what its outcome shows of the answer.

    A target can send a secret back in any encoding. A usual one has at least as many characters
    as the secret, so an excerpt of half its length does not contain the whole secret.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted(filter(None, values), key=len, reverse=True)
        self._limit = min([MAX_SHORT_EXCERPT, *(len(each) // 2 for each in self._values)])

    def shorten(self, text: str) -> str:
        """Return the beginning of the text, with `***` for each secret in it."""
        for value in self._values:
            text = text.replace(value, REDACTED)
        return text if len(text) <= self._limit else f"{text[: self._limit]}{ELLIPSIS}"


def shorten(outcome: TargetOutcome, change: Callable[[str], str]) -> TargetOutcome:
    """Return the outcome with `change` of each text that the target may have sent."""
    match outcome:
        case Success(status, result):
            return Success(status, None if result is None else change(result) or None)
        case Failure(message=message, own=own):
            return replace(outcome, message=message[:own] + change(message[own:]))
        case _:
            assert_never(outcome)


class SecretResolver:
    """The resolution of references with the secrets of a tenant."""

    def __init__(self, files: SecretFiles) -> None:
        self._files = files

    def resolve(self, target: Target, tenant: str) -> tuple[Target, UsedSecrets | None]:
        """Return the target with its secrets, and these secrets.

        A target without a reference and without a literal secret is returned unchanged, and has
        none. Raise `SecretMissing`.
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

    def _http(self, target: HttpTarget, tenant: str) -> tuple[HttpTarget, UsedSecrets | None]:
        call = target.http
        if not call.headers and call.userinfo is None and "@" not in call.url:
            return target, None
        used: Values = set()
        headers = self._headers(call.headers, tenant, used)
        if call.userinfo is not None:
            headers = {**headers, AUTHORIZATION: self._basic(call.userinfo, tenant, used)}
        _add_userinfo_of_url(call, used)
        if not used:
            return target, None
        update = {"headers": headers, "userinfo": None}
        return target.model_copy(update={"http": call.model_copy(update=update)}), UsedSecrets(used)

    def _amqp(self, target: AmqpTarget, tenant: str) -> tuple[AmqpTarget, UsedSecrets | None]:
        message: AmqpMessage = target.amqp
        if not message.headers:
            return target, None
        used: Values = set()
        headers = self._headers(message.headers, tenant, used)
        if not used:
            return target, None
        resolved = message.model_copy(update={"headers": headers})
        return target.model_copy(update={"amqp": resolved}), UsedSecrets(used)

    def _task(self, target: TaskTarget, tenant: str) -> tuple[TaskTarget, UsedSecrets | None]:
        call: TaskCall = target.task
        if not call.args or _REFERENCE_START not in orjson.dumps(call.args):
            return target, None
        used: Values = set()
        args = self._json(call.args, tenant, used)
        if not used:
            return target, None
        resolved = call.model_copy(update={"args": args})
        return target.model_copy(update={"task": resolved}), UsedSecrets(used)

    def _headers(self, headers: Mapping[str, Any], tenant: str, used: Values) -> Mapping[str, Any]:
        """Return the headers with their secrets, and add the secrets to `used`."""
        resolved: dict[str, Any] = {}
        for name, value in headers.items():
            if isinstance(value, SecretRef):
                resolved[name] = self._text(value, tenant, used)
            elif is_secret_header(name) and not isinstance(value, RunRef):
                _add_literal(str(value), used)
        return {**headers, **resolved} if resolved else headers

    def _basic(self, userinfo: UserInfo, tenant: str, used: Values) -> str:
        """Return the value of the header `Authorization`. Raise `SecretMissing`."""
        user, password = (
            self._text(part, tenant, used) if isinstance(part, SecretRef) else part
            for part in (userinfo.user, userinfo.password)
        )
        _add_literal(password, used)
        if ":" in user:
            reason = "The secret that names a user must not contain a colon."
            raise SecretMissing(reason, code=INVALID)
        header = basic(user, password)
        used.add(header.removeprefix("Basic "))
        return header

    def _json(self, value: Any, tenant: str, used: Values) -> Any:  # noqa: ANN401  # JSON
        if isinstance(value, dict):
            if is_reference(value) and isinstance(value[REFERENCE_FIELD], str):
                return self._argument(value[REFERENCE_FIELD], tenant, used)
            return {name: self._json(item, tenant, used) for name, item in value.items()}
        if isinstance(value, list):
            return [self._json(item, tenant, used) for item in value]
        return value

    def _argument(self, name: str, tenant: str, used: Values) -> str:
        """Return a secret for a task, which may have several lines."""
        text = self._read(tenant, name)
        used.add(text)
        return text

    def _text(self, reference: SecretRef, tenant: str, used: Values) -> str:
        """Return a secret for a header. A control character would end the header."""
        text = self._read(tenant, reference.secret)
        if not text.isprintable():
            raise _unusable(reference.secret)
        used.add(text)
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


def _add_userinfo_of_url(call: HttpCall, used: Values) -> None:
    if (userinfo := userinfo_of(call.url)) is not None:
        user, _, password = userinfo.partition(":")
        sent = (unquote(user), unquote(password))
        for secret in (userinfo, password, ":".join(sent).removesuffix(":"), sent[1], basic(*sent)):
            _add_literal(secret, used)


def _add_literal(value: str, used: Values) -> None:
    """Add a literal secret, also without the scheme of an `Authorization`."""
    for text in (value, value.rpartition(" ")[2]):
        if len(text) >= MIN_LITERAL:
            used.add(text)
