"""A slow or unknown commit makes a transaction publish its tickets again."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.fakes.tickets import header
from tests.integration.executor.environment import FaultyPool, open_faulty_pool
from tests.rig.polling import until

from harebell.contract.errors import BrokerUnavailable, DatabaseUnavailable
from harebell.ledger.publishing_transaction import (
    SLOW_COMMIT,
    PublishingTransaction,
    publishing_transaction,
)
from harebell.messaging.publisher import OutgoingMessage

pytestmark = pytest.mark.postgres

# The commit waits for the seconds in each row.
SLOW_TABLE = """
CREATE TABLE slow (seconds float8);
CREATE FUNCTION delay_commit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(new.seconds); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER delay_commit AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION delay_commit();
"""
COMMITTING = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND state = 'active'"


@pytest.fixture
async def faulty_pool(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        await opened.pool.execute(SLOW_TABLE)
        yield opened


async def insert_and_publish(faulty_pool: FaultyPool, seconds: float) -> None:
    async with publishing_transaction(
        faulty_pool.pool, faulty_pool.publisher, faulty_pool.clock
    ) as transaction:
        await transaction.connection.execute("INSERT INTO slow VALUES ($1)", seconds)
        await transaction.publish([header()])


async def row_count(faulty_pool: FaultyPool) -> int:
    count: int = await faulty_pool.pool.fetchval("SELECT count(*) FROM slow")
    return count


def bodies(messages: Sequence[OutgoingMessage]) -> set[bytes]:
    return {message.body for message in messages}


async def test_quick_commit_republishes_nothing(faulty_pool: FaultyPool) -> None:
    await insert_and_publish(faulty_pool, 0)

    assert len(faulty_pool.publisher.published) == 1
    assert await row_count(faulty_pool) == 1


async def test_slow_commit_republishes_the_tickets(
    faulty_pool: FaultyPool,
) -> None:
    await insert_and_publish(faulty_pool, SLOW_COMMIT + 0.2)

    assert len(faulty_pool.publisher.published) == 2
    assert len(bodies(faulty_pool.publisher.published)) == 1
    assert await row_count(faulty_pool) == 1


async def test_commit_with_an_unknown_result_republishes_the_tickets(
    faulty_pool: FaultyPool,
) -> None:
    committing = asyncio.create_task(insert_and_publish(faulty_pool, 5))

    pid = await until(lambda: faulty_pool.pool.fetchval(COMMITTING), within=10, what="the commit")
    await faulty_pool.pool.execute("SELECT pg_terminate_backend($1)", pid)

    with pytest.raises(DatabaseUnavailable):
        await committing
    assert len(faulty_pool.publisher.published) == 2
    assert len(bodies(faulty_pool.publisher.published)) == 1


async def test_transaction_is_rolled_back_when_its_tickets_cannot_be_published(
    faulty_pool: FaultyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise BrokerUnavailable("The broker is gone.")

    monkeypatch.setattr(faulty_pool.publisher, "publish", fail)

    with pytest.raises(BrokerUnavailable):
        await insert_and_publish(faulty_pool, 0)
    assert await row_count(faulty_pool) == 0


async def test_failed_republication_is_ignored_after_a_slow_commit(
    faulty_pool: FaultyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[OutgoingMessage] = []

    async def publish_once(outgoing: OutgoingMessage, *, within: float = 0) -> None:  # noqa: ARG001  # the fake has no timeout
        published.append(outgoing)
        if len(published) > 1:
            raise BrokerUnavailable("The broker is gone.")

    monkeypatch.setattr(faulty_pool.publisher, "publish", publish_once)

    await insert_and_publish(faulty_pool, SLOW_COMMIT + 0.2)

    assert (len(published), await row_count(faulty_pool)) == (2, 1)


async def test_transaction_without_tickets_only_commits(faulty_pool: FaultyPool) -> None:
    transaction: PublishingTransaction
    async with publishing_transaction(
        faulty_pool.pool, faulty_pool.publisher, faulty_pool.clock
    ) as transaction:
        await transaction.connection.execute("INSERT INTO slow VALUES (0)")

    assert (faulty_pool.publisher.published, await row_count(faulty_pool)) == ([], 1)
