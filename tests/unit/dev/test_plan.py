"""Which services run, and what each is told."""

from harebell.dev.plan import Counts, ServiceKind, environment_for, role_url

URL = "postgresql://harebell:s%40cret@127.0.0.1:20001/harebell?sslmode=disable"


def environment(caller: dict[str, str]) -> dict[str, str]:
    return environment_for(
        ServiceKind.TICKER,
        2,
        port=20_002,
        amqp_url="amqp://broker",
        database_url=URL,
        caller=caller,
    )


def test_each_service_logs_in_as_its_own_role() -> None:
    assert role_url(URL, ServiceKind.DLQ_INSPECTOR) == (
        "postgresql://harebell_dlq_inspector:s%40cret@127.0.0.1:20001/harebell?sslmode=disable"
    )


def test_a_service_is_told_its_name_its_port_and_its_servers() -> None:
    told = environment({})

    assert told["HAREBELL_INSTANCE_ID"] == "ticker-2"
    assert told["HAREBELL_HTTP_PORT"] == "20002"
    assert told["HAREBELL_AMQP_URL"] == "amqp://broker"
    assert told["HAREBELL_DATABASE_URL"] == role_url(URL, ServiceKind.TICKER)


def test_the_callers_settings_pass_through_but_not_the_servers_addresses() -> None:
    told = environment(
        {
            "HAREBELL_FAILPOINT": "ticker.published",
            "HAREBELL_LOG_FORMAT": "console",
            "HAREBELL_AMQP_URL": "amqp://elsewhere",
            "HAREBELL_DATABASE_URL": "postgresql://elsewhere",
            "PATH": "/bin",
        }
    )

    assert told["HAREBELL_FAILPOINT"] == "ticker.published"
    assert told["HAREBELL_LOG_FORMAT"] == "console"
    assert told["HAREBELL_AMQP_URL"] == "amqp://broker"
    assert told["HAREBELL_DATABASE_URL"] == role_url(URL, ServiceKind.TICKER)
    assert told["PATH"] == "/bin"


def test_targets_on_loopback_are_allowed_unless_the_caller_says_otherwise() -> None:
    assert environment({})["HAREBELL_ALLOWED_NETWORKS"] == "127.0.0.0/8,::1/128"
    assert environment({"HAREBELL_ALLOWED_NETWORKS": ""})["HAREBELL_ALLOWED_NETWORKS"] == ""


def test_there_is_one_intake_and_one_inspector_however_many_others() -> None:
    members = Counts(tickers=2, dispatchers=3, executors=4).members()

    assert [kind for kind, _ in members].count(ServiceKind.INTAKE) == 1
    assert [kind for kind, _ in members].count(ServiceKind.DLQ_INSPECTOR) == 1
    assert [number for kind, number in members if kind is ServiceKind.EXECUTOR] == [1, 2, 3, 4]
