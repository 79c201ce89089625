"""The order to one executor to stop a run that it holds, or not to start it."""

from harebell.contract.ids import RunId
from harebell.contract.message import Message


class StopRequest(Message):
    """A hint, like every message: the ledger says whether the run is to stop, and why."""

    run_id: RunId
