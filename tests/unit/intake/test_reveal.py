"""The field `reveal`: only the verified login of an operator receives literal secrets."""

from uuid import UUID

import pytest

from harebell.contract.errors import NotAllowed
from harebell.contract.queries import ScheduleGet, ScheduleVersions
from harebell.domain.sender import Sender
from harebell.intake.queries.handler import check_reveal

pytestmark = pytest.mark.requirement("P7")

ID = UUID(int=1)
OPERATOR = Sender(login="harebell_operator", tenant="acme", is_operator=True)


@pytest.mark.parametrize("model", [ScheduleGet, ScheduleVersions])
def test_operator_may_reveal(model: type[ScheduleGet | ScheduleVersions]) -> None:
    check_reveal(model(id=ID, reveal=True), OPERATOR)


@pytest.mark.parametrize(
    "sender",
    [
        None,
        Sender(login="acme", tenant="acme"),
        Sender(login=None, tenant="acme"),
        # with `routing_key`, this tenant alone makes an operator
        Sender(login=None, tenant="harebell", is_operator=True),
    ],
)
def test_other_sender_may_query_but_not_reveal(sender: Sender | None) -> None:
    check_reveal(ScheduleGet(id=ID), sender)
    check_reveal(ScheduleGet(id=ID, reveal=False), sender)

    with pytest.raises(NotAllowed) as failed:
        check_reveal(ScheduleVersions(id=ID, reveal=True), sender)

    assert (failed.value.code, failed.value.field) == ("not_allowed", "reveal")
