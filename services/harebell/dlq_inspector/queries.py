"""Questions to the desk: a page of letters, or one letter whole."""

import asyncpg

from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.contract.message import parse, quoted
from harebell.contract.queries import (
    DEAD_LETTER_QUERIES,
    DeadLetterGet,
    DeadLetterList,
    GroupList,
    Query,
    ReplayJobGet,
    ReplayJobItems,
    ReplayJobList,
)
from harebell.contract.responses import One, Page
from harebell.dlq_inspector.store import groups, queries
from harebell.storage.engine import translate_db_errors


async def answer_query(pool: asyncpg.Pool, tenant: str, verb: str, body: bytes) -> Page | One:
    """Raises `Rejected` for whoever asked, `DatabaseUnavailable` for us."""
    asked = _query(verb, body)
    with translate_db_errors():
        async with pool.acquire() as connection:
            match asked:
                case DeadLetterList():
                    return await queries.dead_letter_page(connection, tenant, asked)
                case GroupList():
                    return await groups.group_page(connection, tenant, asked)
                case DeadLetterGet():
                    return One(item=await queries.dead_letter(connection, tenant, asked.id))
                case ReplayJobList():
                    return await queries.replay_job_page(connection, tenant, asked)
                case ReplayJobGet():
                    return One(item=await queries.replay_job(connection, tenant, asked.id))
                case ReplayJobItems():
                    return await queries.items(connection, tenant, asked)
                case _:
                    raise TypeError(f"{verb} is nobody's")


def _query(verb: str, body: bytes) -> Query:
    if len(body) > MAX_ITEM:
        raise InvalidInput(f"the message has {len(body)} bytes, over {MAX_ITEM}", code="too_large")
    if verb not in DEAD_LETTER_QUERIES:
        raise InvalidInput(f"there is no query {quoted(verb)}", code="unknown_query")
    return parse(DEAD_LETTER_QUERIES[verb], decode(body))
