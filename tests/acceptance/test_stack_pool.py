"""The pool of stacks: the next test gets the same stack, and never one that a test broke."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.acceptance.stack_pool import StackPool
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts()
EXECUTOR = name_of(ServiceKind.EXECUTOR, 1)


@pytest.fixture
def stacks(servers: Servers, tmp_path: Path) -> Iterator[StackPool]:
    opened = StackPool(servers, tmp_path)
    yield opened
    opened.close()


def test_stack_is_handed_on_until_a_test_breaks_it(stacks: StackPool) -> None:
    first = stacks.take(COUNTS)
    assert stacks.take(COUNTS) is first

    first.kill(EXECUTOR)
    second = stacks.take(COUNTS)
    assert second is not first
    assert second.services.process(EXECUTOR) is not None

    second.start_one(ServiceKind.EXECUTOR, 2)
    third = stacks.take(COUNTS)
    assert third is not second

    stacks.close()
    assert third.services.process(EXECUTOR) is None
