"""Questions to the desk: a page of letters, or one letter whole."""

import asyncpg

from harebell.contract.answers import One, Page
from harebell.contract.codec import decode
from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import Malformed
from harebell.contract.message import parse, shown
from harebell.contract.queries import (
    DLQ_QUERIES,
    DlqGroups,
    DlqItems,
    DlqJob,
    DlqJobs,
    DlqList,
    DlqShow,
    Query,
)
from harebell.dlq_inspector import groups, job_pages, pages
from harebell.kernel.db.engine import passing_faults


async def answer(pool: asyncpg.Pool, tenant: str, verb: str, body: bytes) -> Page | One:
    """Raises `Rejected` for whoever asked, `DatabaseUnavailable` for us."""
    asked = _query(verb, body)
    with passing_faults():
        async with pool.acquire() as connection:
            match asked:
                case DlqList():
                    return await pages.page(connection, tenant, asked)
                case DlqGroups():
                    return await groups.page(connection, tenant, asked)
                case DlqShow():
                    return One(item=await pages.one(connection, tenant, asked.id))
                case DlqJobs():
                    return await job_pages.page(connection, tenant, asked)
                case DlqJob():
                    return One(item=await job_pages.one(connection, tenant, asked.id))
                case DlqItems():
                    return await job_pages.items(connection, tenant, asked)
                case _:
                    raise TypeError(f"{verb} is nobody's")


def _query(verb: str, body: bytes) -> Query:
    if len(body) > MAX_ITEM:
        raise Malformed(f"the message has {len(body)} bytes, over {MAX_ITEM}", code="too_large")
    if verb not in DLQ_QUERIES:
        raise Malformed(f"there is no query {shown(verb)}", code="unknown_query")
    return parse(DLQ_QUERIES[verb], decode(body))
