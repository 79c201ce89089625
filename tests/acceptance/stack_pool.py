"""The stacks of one worker that tests share, one for each choice of services."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

from tests.acceptance.stack import Stack
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, name_of


class StackPool:
    """Running stacks with the default settings, which are handed from test to test.

    Each test uses a separate tenant, and a separate pool for the executors that it starts.
    """

    def __init__(self, servers: Servers, root: Path) -> None:
        self._servers = servers
        self._root = root
        self._stacks: dict[ServiceCounts, tuple[Stack, ExitStack]] = {}

    def take(self, counts: ServiceCounts) -> Stack:
        """Return the running stack with these services. Replace a stack that a test broke."""
        known = self._stacks.get(counts)
        if known is not None and is_whole(known[0], counts):
            return known[0]
        if known is not None:
            known[1].close()
        with ExitStack() as opened:
            folder = Path(mkdtemp(dir=self._root))
            stack = opened.enter_context(Stack.open(self._servers, folder))
            stack.start(counts)
            self._stacks[counts] = (stack, opened.pop_all())
        return stack

    def close(self) -> None:
        """Stop every service of every stack."""
        for _, opened in self._stacks.values():
            opened.close()
        self._stacks.clear()


def is_whole(stack: Stack, counts: ServiceCounts) -> bool:
    """Return whether the services of the stack run, and no other service runs."""
    expected = {name_of(kind, number) for kind, number in counts.members()}
    return set(stack.services.processes.processes()) == expected
