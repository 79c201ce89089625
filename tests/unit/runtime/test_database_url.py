import ssl

import pytest

from harebell.contract.errors import InvalidInput
from harebell.runtime.database_url import SslMode, read_database_url


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


@pytest.mark.parametrize("url", ["mysql://u@h/db", "db.example", "postgresql://h:port/db"])
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
