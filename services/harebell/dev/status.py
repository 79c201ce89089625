"""The status of the stack: the JSON of `harebell dev status` and its summary."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class StackHealth(StrEnum):
    """The summary of all processes."""

    RUNNING = "running"
    PARTLY = "partly"
    STOPPED = "stopped"


class ServerReport(BaseModel):
    """A private server, or the supervisor."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None


class ProcessReport(BaseModel):
    """A service. `port` serves `/livez`, `/readyz` and `/metrics`."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None
    port: int
    ready: bool


class StackStatus(BaseModel):
    """The status of every process."""

    model_config = ConfigDict(frozen=True)

    amqp_url: str
    database_url: str
    management_url: str | None
    identity: str  # the proof of the tenant: `verified` or `routing_key`
    processes: tuple[ProcessReport, ...]
    servers: tuple[ServerReport, ...]

    @property
    def health(self) -> StackHealth:
        """The summary. Servers of the caller are not in the list and do not count."""
        pids = [process.pid for process in self.processes] + [each.pid for each in self.servers]
        if not any(pids):
            return StackHealth.STOPPED
        is_ready = all(pids) and all(process.ready for process in self.processes)
        return StackHealth.RUNNING if is_ready else StackHealth.PARTLY
