"""Circuit breakers, as those who run Harebell see them: whose runs are held back, and for how long.

They are no tenant's: the login must be one that may publish for any.
"""

from datetime import datetime

from harebell.client.asking import Asking, View
from harebell.client.replies import one
from harebell.contract.answers import Page
from harebell.contract.breakers import BreakerAnswer
from harebell.contract.codec import encode
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.contract.message import parse
from harebell.contract.names import COMMANDS, OPERATIONS, QUERIES


class Breakers(Asking):
    """A downstream is named http:acme.example, amqp:acme.jobs or task:acme.report."""

    async def breakers(self) -> list[View]:
        """Those that are open or half open, are forced, or have closed within the hour."""
        return one(Page, await self._courier.ask(QUERIES, OPERATIONS, "breaker.list", b"{}")).items

    async def open_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerAnswer:
        """Hold back its runs, whatever comes of attempts."""
        return await self._order("open", downstream, until=until, note=note)

    async def close_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerAnswer:
        """Let its runs pass, whatever comes of attempts."""
        return await self._order("close", downstream, until=until, note=note)

    async def release_breaker(self, downstream: str, *, note: str | None = None) -> BreakerAnswer:
        """Let what comes of attempts decide again."""
        return await self._order("auto", downstream, note=note)

    async def _order(self, what: str, downstream: str, **fields: object) -> BreakerAnswer:
        verb = f"breaker.{what}"
        given = {name: value for name, value in fields.items() if value is not None}
        body = encode(parse(COMMAND_MODELS[verb], {"downstream": downstream, **given}))
        return one(BreakerAnswer, await self._courier.ask(COMMANDS, OPERATIONS, verb, body))
