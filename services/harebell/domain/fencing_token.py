"""The fencing token: the epoch of the database above the sequence number of a claim.

A promoted standby may lack the last claims, so its rows may issue a `seq` that a target has seen.
Its higher epoch makes every token of its claims higher than all earlier ones.
"""

from typing import Final

SEQ_BITS: Final = 32  # of `seq`, below the epoch
MAX_EPOCH: Final = 2**21 - 1  # so that a token stays below 2**53, which every JSON reader can store


def fencing_token(epoch: int | None, seq: int) -> int:
    """Return the token of a claim. A row that an older release claimed has no epoch."""
    return (epoch or 0) << SEQ_BITS | seq


def seq_of(token: int) -> int:
    """Return the `seq` of the row directly after the claim."""
    return token & ((1 << SEQ_BITS) - 1)
