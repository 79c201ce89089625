"""Questions to the desk: a page of letters, or one letter whole."""

import asyncpg

from harebell.contract.answers import One, Page
from harebell.contract.codec import decode
from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import Malformed
from harebell.contract.message import parse, shown
from harebell.contract.queries import DlqGroups, DlqList, DlqShow
from harebell.dlq_inspector import groups, pages
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


def _query(verb: str, body: bytes) -> DlqList | DlqShow | DlqGroups:
    if len(body) > MAX_ITEM:
        raise Malformed(f"the message has {len(body)} bytes, over {MAX_ITEM}", code="too_large")
    match verb:
        case "dlq.list":
            return parse(DlqList, decode(body))
        case "dlq.show":
            return parse(DlqShow, decode(body))
        case "dlq.groups":
            return parse(DlqGroups, decode(body))
        case _:
            raise Malformed(f"there is no query {shown(verb)}", code="unknown_query")
