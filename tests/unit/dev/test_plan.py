"""The plan of the stack: services and their environment."""

from harebell.dev.plan import ServiceCounts, ServiceKind, role_url, service_environment

URL = "postgresql://harebell:s%40cret@127.0.0.1:20001/harebell?sslmode=disable"


def environment(caller: dict[str, str]) -> dict[str, str]:
    return service_environment(
        ServiceKind.TICKER,
        2,
        port=20_002,
        amqp_url="amqp://broker",
        database_url=URL,
        environ=caller,
    )


def test_each_service_uses_its_own_role() -> None:
    assert role_url(URL, ServiceKind.DLQ_INSPECTOR) == (
        "postgresql://harebell_dlq_inspector:s%40cret@127.0.0.1:20001/harebell?sslmode=disable"
    )


def test_environment_contains_name_port_and_servers() -> None:
    told = environment({})

    assert told["HAREBELL_INSTANCE_ID"] == "ticker-2"
    assert told["HAREBELL_HTTP_PORT"] == "20002"
    assert told["HAREBELL_AMQP_URL"] == "amqp://broker"
    assert told["HAREBELL_DATABASE_URL"] == role_url(URL, ServiceKind.TICKER)


def test_environment_of_the_caller_applies_except_addresses() -> None:
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


def test_environment_omits_every_other_variable_of_the_caller() -> None:
    kept = {"SSL_CERT_FILE": "/etc/ca", "PYTHONPATH": "/lib", "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    variables = environment({**kept, "CLOUD_TOKEN": "x", "SSH_AUTH_SOCK": "x", "MYPATH": "x"})

    assert kept.items() <= variables.items()
    assert not {"CLOUD_TOKEN", "SSH_AUTH_SOCK", "MYPATH"} & set(variables)


def test_loopback_targets_are_allowed_by_default() -> None:
    assert environment({})["HAREBELL_ALLOWED_NETWORKS"] == "127.0.0.0/8,::1/128"
    assert environment({"HAREBELL_ALLOWED_NETWORKS": ""})["HAREBELL_ALLOWED_NETWORKS"] == ""


def test_counts_have_one_intake_and_one_dlq_inspector() -> None:
    members = ServiceCounts(tickers=2, dispatchers=3, executors=4).members()

    assert [kind for kind, _ in members].count(ServiceKind.INTAKE) == 1
    assert [kind for kind, _ in members].count(ServiceKind.DLQ_INSPECTOR) == 1
    assert [number for kind, number in members if kind is ServiceKind.EXECUTOR] == [1, 2, 3, 4]
