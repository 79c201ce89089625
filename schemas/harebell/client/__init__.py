"""The client: changes of schedules and runs, and queries about them. It needs no database.

* client         the client of one tenant
* dead_letters   its methods for dead letters, failure groups and replay jobs
* breakers       its methods for circuit breakers
* calendars      its methods for calendars
* reports        its methods for delegated runs
* worker         a consumer of delegated runs, with heartbeats and reports
* requests       the keyword arguments of its methods
* base           one request and its checked response
* rpc            requests and responses over AMQP
* trace          the trace context of requests
"""

from harebell.client.client import Client
from harebell.client.trace import trace_context
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
    TenantUsageView,
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
    "TenantUsageView",
    "Unroutable",
    "VersionView",
    "trace_context",
]
