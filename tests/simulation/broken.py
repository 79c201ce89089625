"""Rules broken on purpose, one at a time: a simulation that cannot fail shows nothing."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from typing import Any, Final
from unittest.mock import patch

from tests.memory import claims, pool, sweeps
from tests.memory.pool import Record
from tests.memory.runs import Run, numbered, run_of
from tests.memory.store import Transaction

from harebell.contract.identity import RunKey
from harebell.executor import core
from harebell.executor.core import Claimed
from harebell.kernel.amqp.publish import Outgoing
from harebell.kernel.authorising import Authority
from harebell.kernel.db.ledger.claims import _CLAIM, Wanted
from harebell.kernel.db.ledger.staging import _CANCEL
from harebell.kernel.db.ledger.sweeps import _LOST
from harebell.kernel.ledger import RunState
from harebell.kernel.retry import Decision, decide
from harebell.kernel.routing import Routed

Break = Callable[[], AbstractContextManager[object]]

TOO_LATE: Final = 0.5  # seconds after the commit


def _claim_whatever_seq(
    tx: Transaction,
    moments: Sequence[datetime],
    schedules: Sequence[Any],
    seqs: Sequence[int],
    *rest: Any,
) -> Iterable[Record]:
    found = [(run_of(tx, key), seq) for _, key, seq in numbered(moments, schedules, seqs)]
    as_they_are = [seq if run is None else run.seq for run, seq in found]
    return list(claims.claim(tx, moments, schedules, as_they_are, *rest) or ())


@contextmanager
def claim_ignores_seq() -> Generator[None]:
    with ExitStack() as patches:
        patches.enter_context(patch.dict(pool.ANSWERS, {_CLAIM: _claim_whatever_seq}))
        patches.enter_context(patch.object(Wanted, "is_met_by", lambda _, claim: claim is not None))
        yield


def settle_without_fencing() -> AbstractContextManager[object]:
    def held(tx: Transaction, key: RunKey, _: int) -> Run | None:
        run = run_of(tx, key)
        return run if run is not None and run.state is RunState.RUNNING else None

    return patch.object(claims, "held", held)


def commit_before_publish() -> AbstractContextManager[object]:
    publish = Authority.publish

    async def later(
        self: Authority, tickets: Iterable[Routed], others: Sequence[Outgoing] = ()
    ) -> None:
        sent = list(tickets)

        def send() -> None:
            asyncio.ensure_future(publish(self, sent, others))  # noqa: RUF006  # broken anyhow

        asyncio.get_running_loop().call_later(TOO_LATE, send)

    return patch.object(Authority, "publish", later)


def sweep_lapses_early() -> AbstractContextManager[object]:
    return patch.object(sweeps, "_has_lapsed", lambda *_: True)


@contextmanager
def start_on_any_lease() -> Generator[None]:
    with (
        patch.object(Claimed, "is_fresh", lambda *_: True),
        patch.object(Claimed, "lease_ends", float("inf")),
    ):
        yield


def one_attempt_too_many() -> AbstractContextManager[object]:
    def again(policy: Any, attempt: int, *args: Any, **more: Any) -> Decision:
        return decide(policy, attempt - 1, *args, **more)

    return patch.object(core, "decide", again)


def what_is_lost_stays_lost() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {_LOST: lambda *_: []})


def cancel_leaves_runs() -> AbstractContextManager[object]:
    return patch.dict(pool.ANSWERS, {_CANCEL: lambda *_: None})


BROKEN: Final[dict[str, Break]] = {
    each.__name__: each
    for each in (
        claim_ignores_seq,
        settle_without_fencing,
        commit_before_publish,
        sweep_lapses_early,
        start_on_any_lease,
        one_attempt_too_many,
        what_is_lost_stays_lost,
        cancel_leaves_runs,
    )
}
