"""Control messages to one executor."""

from harebell.contract.ids import RunId
from harebell.contract.message import Message


class StopRequest(Message):
    """The request to cancel a claimed run.

    The executor reads the row of the run, which states whether and why the run stops.
    """

    run_id: RunId
