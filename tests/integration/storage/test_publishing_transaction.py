"""A commit that tickets may have outrun is followed by the same tickets once more."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.fakes.tickets import routed
from tests.integration.executor.environment import FaultyPool, open_faulty_pool

from harebell.contract.errors import BrokerUnavailable, DatabaseUnavailable
from harebell.messaging.publisher import OutgoingMessage
from harebell.storage.publishing_transaction import (
    SLOW_COMMIT,
    PublishingTransaction,
    publishing_transaction,
)

pytestmark = pytest.mark.postgres

# Its rows are what a commit waits for: so many seconds each.
SLOW_TABLE = """
CREATE TABLE slow (seconds float8);
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(new.seconds); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION dawdle();
"""
COMMITTING = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND state = 'active'"


@pytest.fixture
async def books(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        await opened.pool.execute(SLOW_TABLE)
        yield opened


async def authorise(books: FaultyPool, seconds: float) -> None:
    async with publishing_transaction(books.pool, books.publisher, books.clock) as authority:
        await authority.connection.execute("INSERT INTO slow VALUES ($1)", seconds)
        await authority.publish([routed()])


async def written(books: FaultyPool) -> int:
    count: int = await books.pool.fetchval("SELECT count(*) FROM slow")
    return count


def bodies(messages: Sequence[OutgoingMessage]) -> set[bytes]:
    return {message.body for message in messages}


async def test_a_quick_commit_is_followed_by_nothing(books: FaultyPool) -> None:
    await authorise(books, 0)

    assert len(books.publisher.published) == 1
    assert await written(books) == 1


async def test_tickets_that_have_waited_long_for_their_commit_are_published_again(
    books: FaultyPool,
) -> None:
    await authorise(books, SLOW_COMMIT + 0.2)

    assert len(books.publisher.published) == 2
    assert len(bodies(books.publisher.published)) == 1
    assert await written(books) == 1


async def test_so_they_are_when_nobody_knows_whether_it_was_committed(books: FaultyPool) -> None:
    authorised = asyncio.create_task(authorise(books, 5))

    async with asyncio.timeout(10):
        while (pid := await books.pool.fetchval(COMMITTING)) is None:
            continue
    await books.pool.execute("SELECT pg_terminate_backend($1)", pid)

    with pytest.raises(DatabaseUnavailable):
        await authorised
    assert len(books.publisher.published) == 2
    assert len(bodies(books.publisher.published)) == 1


async def test_what_cannot_be_published_is_not_committed(
    books: FaultyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise BrokerUnavailable("away")

    monkeypatch.setattr(books.publisher, "publish", away)

    with pytest.raises(BrokerUnavailable):
        await authorise(books, 0)
    assert await written(books) == 0


async def test_what_is_published_again_in_vain_is_left_to_the_sweep(
    books: FaultyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[OutgoingMessage] = []

    async def once(outgoing: OutgoingMessage, *, within: float = 0) -> None:  # noqa: ARG001
        said.append(outgoing)
        if len(said) > 1:
            raise BrokerUnavailable("away")

    monkeypatch.setattr(books.publisher, "publish", once)

    await authorise(books, SLOW_COMMIT + 0.2)

    assert (len(said), await written(books)) == (2, 1)


async def test_a_transaction_that_publishes_nothing_is_only_a_transaction(books: FaultyPool) -> None:
    authority: PublishingTransaction
    async with publishing_transaction(books.pool, books.publisher, books.clock) as authority:
        await authority.connection.execute("INSERT INTO slow VALUES (0)")

    assert (books.publisher.published, await written(books)) == ([], 1)
