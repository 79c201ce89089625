"""The signatures of calls: which keys sign the calls of a run, and the attempt with its signer."""

from collections.abc import Callable

from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.webhook_signature import MessageSigner
from harebell.executor.targets.attempt import AttemptContext
from harebell.runtime.signing_keys import SigningKeys


class CallSigner:
    """The signer of HTTP calls and AMQP messages.

    `policies` returns the policies in force, which name the signing keys of each tenant. The field
    `sign` of a schedule replaces them.
    """

    def __init__(self, keys: SigningKeys, policies: Callable[[], TenantPolicies]) -> None:
        self._keys = keys
        self._policies = policies

    def sign(self, attempt: AttemptContext) -> AttemptContext:
        """Return the attempt with the signer of its message, or unchanged without a key.

        Raise `SecretMissing` or `SigningKeyInvalid`. The caller must not call the target then.
        """
        run_spec = attempt.ticket.run_spec
        names = run_spec.sign or [
            each.secret for each in self._policies().of(run_spec.tenant).signing
        ]
        if not names:
            return attempt
        keys = self._keys.read(run_spec.tenant, names)
        second = int(attempt.started_at.timestamp())
        return attempt._replace(signer=MessageSigner(keys, attempt.ticket.run_id, second))
