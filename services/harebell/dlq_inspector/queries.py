"""Queries about dead letters, failure groups and replay jobs, and their responses."""

from typing import TypeAlias, assert_never

import asyncpg

from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.contract.message import Message, parse, quoted
from harebell.contract.queries import (
    DEAD_LETTER_QUERIES,
    DeadLetterGet,
    DeadLetterList,
    GroupList,
    ParkedList,
    ReplayJobGet,
    ReplayJobItems,
    ReplayJobList,
)
from harebell.dlq_inspector.parked import ParkingQueue
from harebell.dlq_inspector.store import groups, queries
from harebell.storage.engine import translate_db_errors

StoredQuery: TypeAlias = (
    DeadLetterList | DeadLetterGet | GroupList | ReplayJobList | ReplayJobGet | ReplayJobItems
)
InspectorQuery: TypeAlias = StoredQuery | ParkedList


async def answer_query(
    pool: asyncpg.Pool, parking: ParkingQueue, *, tenant: str, verb: str, body: bytes
) -> Message:
    """Return the response to a query.

    Raise `Rejected` for an invalid query, `DatabaseUnavailable` or `BrokerUnavailable`.
    """
    query = _parse_query(verb, body)
    if isinstance(query, ParkedList):
        return await parking.show(tenant, query)
    with translate_db_errors():
        async with pool.acquire() as connection:
            return await _read(connection, tenant, query)


async def _read(connection: asyncpg.Connection, tenant: str, query: StoredQuery) -> Message:
    match query:
        case DeadLetterList():
            return await queries.dead_letter_page(connection, tenant, query)
        case DeadLetterGet():
            return await queries.dead_letter(connection, tenant, query)
        case GroupList():
            return await groups.group_page(connection, tenant, query)
        case ReplayJobList():
            return await queries.replay_job_page(connection, tenant, query)
        case ReplayJobGet():
            return await queries.replay_job(connection, tenant, query)
        case ReplayJobItems():
            return await queries.replay_item_page(connection, tenant, query)
        case _:
            assert_never(query)


def _parse_query(verb: str, body: bytes) -> InspectorQuery:
    if len(body) > MAX_ITEM:
        reason = f"The message must have at most {MAX_ITEM} bytes, not {len(body)}."
        raise InvalidInput(reason, code="too_large")
    if verb not in DEAD_LETTER_QUERIES:
        reason = f"The query must be one of {', '.join(DEAD_LETTER_QUERIES)}, not {quoted(verb)}."
        raise InvalidInput(reason, code="unknown_query")
    query = parse(DEAD_LETTER_QUERIES[verb], decode(body))
    assert isinstance(query, InspectorQuery)  # noqa: S101  # for the type checker
    return query
