import ssl

import pytest

from harebell.contract.errors import InvalidInput
from harebell.runtime.database_url import (
    MAX_HOSTS,
    Pooler,
    SessionTarget,
    SslMode,
    read_database_url,
)


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u:p@127.0.0.1:5432/db", SslMode.PREFER),
        ("postgresql://u:p@localhost/db", SslMode.PREFER),
        ("postgresql://u:p@[::1]:5432/db", SslMode.PREFER),
        ("postgresql://u:p@/db?host=/run/postgresql", SslMode.PREFER),
        ("postgresql://u:p@db.example/db", SslMode.VERIFY_FULL),
        ("postgres://u:p@10.0.0.7:6432/db", SslMode.VERIFY_FULL),
        ("postgresql://u:p@127.0.0.1,db.example/db", SslMode.VERIFY_FULL),
        ("postgresql://u:p@/db?host=db.example", SslMode.VERIFY_FULL),
        ("postgresql://u:p@db.example/db?sslmode=disable", SslMode.DISABLE),
    ],
)
def test_default_mode_is_verify_full_off_loopback(url: str, mode: SslMode) -> None:
    assert read_database_url(url).sslmode is mode


@pytest.mark.parametrize("mode", [SslMode.VERIFY_CA, SslMode.VERIFY_FULL])
def test_context_verifies_the_server(mode: SslMode) -> None:
    context = read_database_url(f"postgresql://db.example/db?sslmode={mode}").ssl()

    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is (mode is SslMode.VERIFY_FULL)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("ssl=require", "must not have the parameter 'ssl'"),
        ("sslmode=on", "must be one of disable, allow"),
        ("target_session_attrs=master", "must be one of any, primary, read-write"),
        ("pooler=session", "must be one of none, transaction"),
        ("sslmode=require&sslmode=disable", "must have exactly one value"),
        ("sslrootcert=", "must have exactly one value"),
        ("sslcert=/a.pem", "both parameters sslcert and sslkey"),
        ("application_name=x", "must not have the parameter 'application_name'"),
    ],
)
def test_other_parameter_is_an_error_without_the_url(query: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_database_url(f"postgresql://u:word@db.example/db?{query}")

    assert reason in caught.value.reason
    assert "word" not in caught.value.reason
    assert caught.value.field == "database_url"


@pytest.mark.parametrize(
    "url", ["mysql://u@h/db", "db.example", "postgresql://h:port/db", "postgresql://a,[::1]/db"]
)
def test_other_form_is_an_error(url: str) -> None:
    with pytest.raises(InvalidInput):
        read_database_url(url)


@pytest.mark.parametrize(
    ("url", "count"),
    [
        ("postgresql://127.0.0.1/db?sslmode=disable", 0),
        ("postgresql://db.example/db", 0),
        ("postgresql://db.example/db?sslmode=verify-ca", 1),
        ("postgresql://db.example/db?sslmode=prefer", 1),
    ],
)
def test_weaker_mode_off_loopback_is_a_weakness(url: str, count: int) -> None:
    assert len(read_database_url(url).weaknesses()) == count


@pytest.mark.parametrize(
    ("hosts", "query", "targets"),
    [
        ("a.example", "", [SessionTarget.ANY]),
        ("a.example,b.example:5433", "", [SessionTarget.PRIMARY]),
        ("a.example,b.example", "?target_session_attrs=read-write", [SessionTarget.PRIMARY]),
        ("a.example", "?target_session_attrs=read-only", [SessionTarget.STANDBY]),
        (
            "a.example,b.example",
            "?target_session_attrs=prefer-standby",
            [SessionTarget.STANDBY, SessionTarget.ANY],
        ),
    ],
)
def test_several_hosts_mean_the_primary_by_default(
    hosts: str, query: str, targets: list[SessionTarget]
) -> None:
    address = read_database_url(f"postgresql://u:p@{hosts}/db{query}")

    assert list(address.session_targets) == targets
    assert "target_session_attrs" not in address.dsn


def test_hosts_and_ports_of_several_servers_are_in_order() -> None:
    address = read_database_url(
        "postgresql://u:p@a.example:1,10.0.0.7:2,c.example/db?sslmode=require"
    )

    assert address.hosts == ("a.example", "10.0.0.7", "c.example")
    assert address.ports == (1, 2, 5432)


@pytest.mark.parametrize("hosts", [",a.example", ",".join(["a.example"] * (MAX_HOSTS + 1))])
def test_each_of_the_hosts_needs_a_name_and_their_number_has_a_bound(hosts: str) -> None:
    with pytest.raises(InvalidInput, match=f"at most {MAX_HOSTS} hosts"):
        read_database_url(f"postgresql://u:p@{hosts}/db")


def test_pooler_is_a_parameter_that_the_driver_does_not_get() -> None:
    address = read_database_url("postgresql://u:p@a.example/db?pooler=transaction")

    assert address.pooler is Pooler.TRANSACTION
    assert "pooler" not in address.dsn
