"""The client: changes of schedules and runs, and queries about them. It needs no database.

* client         the client of one tenant
* dead_letters   its methods for dead letters, failure groups and replay jobs
* breakers       its methods for circuit breakers
* requests       the keyword arguments of its methods
* base           one request and its checked response
* rpc            requests and responses over AMQP
* connection     connections, confirms and timeouts
* tls            faults of certificates and weak links in words
"""

from harebell.client.client import Client
from harebell.contract.commands import SchedulePut
from harebell.contract.errors import (
    BrokerUnavailable,
    CommandRejected,
    HarebellError,
    InvalidInput,
    NotAllowed,
    ResponseTimeout,
    Unroutable,
)
from harebell.contract.responses import (
    BulkResponse,
    DeadLetterResponse,
    ErrorResponse,
    ReplayJobResponse,
    RunResponse,
    ScheduleResponse,
)
from harebell.contract.views import (
    AttemptView,
    BreakerView,
    DeadLetterDetail,
    DeadLetterView,
    ExplanationView,
    FailureGroupView,
    PreviewView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduleView,
    VersionView,
)

__all__ = [
    "AttemptView",
    "BreakerView",
    "BrokerUnavailable",
    "BulkResponse",
    "Client",
    "CommandRejected",
    "DeadLetterDetail",
    "DeadLetterResponse",
    "DeadLetterView",
    "ErrorResponse",
    "ExplanationView",
    "FailureGroupView",
    "HarebellError",
    "InvalidInput",
    "NotAllowed",
    "PreviewView",
    "ReplayItemView",
    "ReplayJobDetail",
    "ReplayJobResponse",
    "ReplayJobView",
    "ResponseTimeout",
    "RunDetail",
    "RunResponse",
    "RunView",
    "ScheduleDetail",
    "SchedulePut",
    "ScheduleResponse",
    "ScheduleView",
    "Unroutable",
    "VersionView",
]
