"""The order to one executor not to start a run that it holds."""

from harebell.contract.identity import RunId
from harebell.contract.message import Message


class Stop(Message):
    """A hint, like every message: the ledger says whether the run may be dropped."""

    run_id: RunId
