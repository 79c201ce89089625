"""The equal messages without an id: each one is a message, and a redelivery is none."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

MAX_ACCEPTED: Final = 100_000  # digests of accepted messages; the oldest is forgotten first


class AcceptedDigests:
    """The digests of the messages without an id that this process has accepted.

    The first message with a digest has the key of the digest, so that its redelivery has the same
    key. A message that the broker delivers for the first time although its digest is known is
    another message, and its key has a suffix.
    """

    def __init__(self, limit: int = MAX_ACCEPTED) -> None:
        self._limit = limit
        self._digests: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def add(self, digests: Iterable[str]) -> None:
        """Add the digests of accepted messages, and forget the oldest ones."""
        for digest in digests:
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > self._limit:
            self._digests.popitem(last=False)
