"""What the stack says of itself: the shape of `-o json`, and how well it is as one word."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class StackHealth(StrEnum):
    RUNNING = "running"
    PARTLY = "partly"
    STOPPED = "stopped"


class ServerReport(BaseModel):
    """A server of ours, or the supervisor."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None


class ProcessReport(BaseModel):
    """A service; `port` answers `/livez`, `/readyz` and `/metrics`."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None
    port: int
    ready: bool


class StackStatus(BaseModel):
    model_config = ConfigDict(frozen=True)

    amqp_url: str
    database_url: str
    management_url: str | None
    processes: tuple[ProcessReport, ...]
    servers: tuple[ServerReport, ...]

    @property
    def health(self) -> StackHealth:
        """Servers that were given to us are not in the list, so they do not count."""
        pids = [process.pid for process in self.processes] + [each.pid for each in self.servers]
        if not any(pids):
            return StackHealth.STOPPED
        well = all(pids) and all(process.ready for process in self.processes)
        return StackHealth.RUNNING if well else StackHealth.PARTLY
