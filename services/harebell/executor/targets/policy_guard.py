"""The judgement of each attempt by the tenant policy in force, before its effect."""

from dataclasses import dataclass

from harebell.contract.errors import NotAllowed, Rejected
from harebell.contract.ticket import Ticket
from harebell.domain.retry import Failure
from harebell.domain.target_check import check_call, check_pool, check_priority
from harebell.domain.tenant_policy import PolicySource, TenantPolicy
from harebell.executor.targets.attempt import excerpt
from harebell.runtime import metrics


@dataclass(frozen=True, slots=True)
class PolicyGuard:
    """The policies in force and the pool of the executor."""

    policies: PolicySource
    pool: str

    def policy_of(self, ticket: Ticket) -> TenantPolicy:
        """Return the policy of the tenant of a run."""
        return self.policies.current.of(ticket.run_spec.tenant)

    def refusal(self, ticket: Ticket) -> Failure | None:
        """Return the failure of a run that the policy forbids, or None.

        The HTTP target checks its URLs itself, because redirects lead to further URLs.
        """
        policy = self.policy_of(ticket)
        try:
            check_pool(self.pool, policy)
            check_priority(ticket.priority, policy)
            check_call(ticket.run_spec.target, ticket.run_spec.tenant, policy)
        except NotAllowed as error:
            return refused(error)
        return None


def refused(error: Rejected) -> Failure:
    """Return the permanent failure of an attempt without a call, and count it."""
    if not isinstance(error, NotAllowed) or error.rule is None:
        return Failure(error.code, excerpt(error.reason), retryable=False)
    metrics.POLICY_REFUSALS.labels(error.code, error.rule).inc()
    return Failure(error.code, excerpt(f"{error.field}: {error.reason}"), retryable=False)
