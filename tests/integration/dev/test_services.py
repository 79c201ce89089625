"""Single services with their own settings."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harebell.dev.errors import NotReady
from harebell.dev.local_services import LocalServices
from harebell.dev.plan import STOP_TIMEOUT, ServiceKind
from harebell.dev.spawn import identify

SHOW = "import os, sys; print('failpoint', os.environ.get('HAREBELL_FAILPOINT')); sys.exit(1)"
STAND_IN = Path(__file__).with_name("stand_in.py")
MANY = 20  # services
ARGUMENTS = {ServiceKind.TICKER: ("-c", SHOW)}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[LocalServices]:
    services = LocalServices(
        tmp_path,
        amqp_url="amqp://nobody@127.0.0.1:1",
        database_url="postgresql://nobody@127.0.0.1:1/nothing",
        command=lambda kind: (sys.executable, *ARGUMENTS.get(kind, (str(STAND_IN),))),
    )
    yield services
    services.stop()


def test_killed_service_starts_again_on_its_port(
    services: LocalServices,
) -> None:
    first = services.start(ServiceKind.EXECUTOR, 2)
    services.kill(first.name)
    dead = identify(first.pid)

    second = services.start(ServiceKind.EXECUTOR, 2)

    assert dead is None
    assert (second.name, second.port) == ("executor-2", first.port)
    assert second.pid != first.pid


def test_plan_of_a_running_service_keeps_its_port(
    services: LocalServices,
) -> None:
    started = services.start(ServiceKind.EXECUTOR)

    assert services.plan(ServiceKind.EXECUTOR).port == started.port


def test_environment_of_one_service_does_not_affect_another(services: LocalServices) -> None:
    services.start(ServiceKind.EXECUTOR, environment={"HAREBELL_FAILPOINT": "executor.claimed"})

    with pytest.raises(NotReady, match="failpoint None"):
        services.start(ServiceKind.TICKER)
    with pytest.raises(NotReady, match=r"failpoint ticker\.published"):
        services.start(ServiceKind.TICKER, environment={"HAREBELL_FAILPOINT": "ticker.published"})


def test_concurrently_started_services_have_different_ports(services: LocalServices) -> None:
    ports = {services.plan(kind).port for kind in ServiceKind}

    assert len(ports) == len(ServiceKind)


def test_concurrently_planned_services_have_different_ports(services: LocalServices) -> None:
    def port_of(number: int) -> int:
        return services.plan(ServiceKind.EXECUTOR, number).port

    with ThreadPoolExecutor(MANY) as threads:
        ports = list(threads.map(port_of, range(1, MANY + 1)))

    assert len(set(ports)) == MANY


@pytest.mark.parametrize(
    ("kind", "shutdown_timeout", "expected"),
    [
        (ServiceKind.EXECUTOR, None, 25 + STOP_TIMEOUT),
        (ServiceKind.EXECUTOR, "90s", 90 + STOP_TIMEOUT),
        (ServiceKind.EXECUTOR, "2h", 3600 + STOP_TIMEOUT),
        (ServiceKind.EXECUTOR, "soon", STOP_TIMEOUT),
        (ServiceKind.TICKER, "90s", STOP_TIMEOUT),
    ],
)
def test_plan_contains_the_stop_timeout_of_the_service(
    services: LocalServices, kind: ServiceKind, shutdown_timeout: str | None, expected: float
) -> None:
    variable = "HAREBELL_SHUTDOWN_TIMEOUT"
    environment = {} if shutdown_timeout is None else {variable: shutdown_timeout}

    assert services.plan(kind, environment=environment).stop_timeout == expected
