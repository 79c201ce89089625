"""The settings of services: values, files and errors."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from harebell.contract.errors import InvalidInput
from harebell.domain.sender import IdentityMode
from harebell.domain.url_policy import Egress
from harebell.runtime.settings import (
    DispatcherSettings,
    DlqInspectorSettings,
    ExecutorSettings,
    IntakeSettings,
    PoolBounds,
    ServiceSettings,
    TickerSettings,
)

URLS = {
    "HAREBELL_AMQP_URL": "amqp://guest:secret@localhost/",
    "HAREBELL_DATABASE_URL": "postgresql://harebell:secret@localhost/harebell",
}


def test_unset_settings_have_defaults() -> None:
    settings = TickerSettings.load(URLS)

    assert settings.amqp_url.get_secret_value() == URLS["HAREBELL_AMQP_URL"]
    assert settings.horizon.total_seconds() == 84
    assert settings.topology_mode == "check"


@pytest.mark.requirement("P1")
def test_prepared_broker_requires_verified_senders() -> None:
    declare = URLS | {"HAREBELL_TOPOLOGY_MODE": "declare"}
    check = URLS | {"HAREBELL_TOPOLOGY_MODE": "check"}

    assert IntakeSettings.load(declare).identity_mode is IdentityMode.ROUTING_KEY
    assert IntakeSettings.load(check).identity_mode is IdentityMode.VERIFIED
    assert IntakeSettings.load(URLS).identity_mode is IdentityMode.VERIFIED
    explicit = declare | {"HAREBELL_IDENTITY": "verified"}
    assert IntakeSettings.load(explicit).identity_mode is IdentityMode.VERIFIED
    for prepared in (check, URLS):
        with pytest.raises(InvalidInput, match="must be verified where HAREBELL_TOPOLOGY_MODE is"):
            IntakeSettings.load(prepared | {"HAREBELL_IDENTITY": "routing_key"})


def test_operators_are_a_list_of_logins() -> None:
    assert IntakeSettings.load(URLS).operators == {"harebell_operator"}
    two = IntakeSettings.load(URLS | {"HAREBELL_OPERATORS": "ann, ben"})
    assert two.operators == {"ann", "ben"}


@pytest.mark.requirement("S44")
def test_min_poll_interval_has_bounds() -> None:
    gap = "HAREBELL_MIN_POLL_INTERVAL"

    assert TickerSettings.load(URLS).min_poll_interval.total_seconds() == 0.25
    assert TickerSettings.load(URLS | {gap: "5s"}).min_poll_interval.total_seconds() == 5
    for refused in ("0s", "5ms", "16s"):
        with pytest.raises(InvalidInput) as failed:
            TickerSettings.load(URLS | {gap: refused})
        assert failed.value.field == gap


def test_variables_of_other_programs_are_ignored() -> None:
    others = {"PATH": "/bin", "PREFIX_HAREBELL_X": "1", "HAREBELL_TENANT": "acme"}

    settings = DispatcherSettings.load(URLS | others | {"HAREBELL_SLOTS_HIGH": "3"})

    assert settings.work_batch_size == 50


@pytest.mark.parametrize(
    "variable", ["HAREBELL_HORIZN", "HAREBELL_", "HAREBELL_AMQP", "HAREBELL_AMQP_URL_FILES"]
)
def test_unknown_variable_is_rejected_with_its_name(variable: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        TickerSettings.load(URLS | {variable: "1"})

    assert (refused.value.field, refused.value.code) == (variable, "unknown_setting")


@pytest.mark.parametrize(
    ("settings", "variable", "value"),
    [
        (TickerSettings, "HAREBELL_HORIZON", "soon"),
        (TickerSettings, "HAREBELL_HORIZON", "-5s"),
        (TickerSettings, "HAREBELL_STAGING_BATCH", "0"),
        (TickerSettings, "HAREBELL_HTTP_PORT", "65536"),
        (TickerSettings, "HAREBELL_TOPOLOGY_MODE", "guess"),
        (DispatcherSettings, "HAREBELL_WORK_BATCH_SIZE", "201"),
        (IntakeSettings, "HAREBELL_DEFAULT_WHEN", "every hour"),
        (IntakeSettings, "HAREBELL_DEFAULT_WHEN", '{"acme": {"cron": "75 * * * *"}}'),
        (ExecutorSettings, "HAREBELL_POOL", "Big Pool"),
        (ExecutorSettings, "HAREBELL_ALLOWED_NETWORKS", "10.0.0.0/8,everything"),
        (ExecutorSettings, "HAREBELL_ALLOWED_NETWORKS", "10.1.2.3/16"),
        (ExecutorSettings, "HAREBELL_DENIED_NETWORKS", "10.0.0.0/8,everything"),
        (ExecutorSettings, "HAREBELL_EGRESS_PROXY", "ftp://proxy.example"),
    ],
)
def test_malformed_value_is_rejected_with_its_variable(
    settings: type[ServiceSettings], variable: str, value: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings.load(URLS | {variable: value})

    assert (refused.value.field, refused.value.code) == (variable, "invalid_setting")


@pytest.mark.requirement("S57")
@pytest.mark.parametrize(
    ("variable", "value"),
    [("MAX", "0"), ("MAX", "201"), ("MIN", "-1"), ("MIN", "9"), ("TIMEOUT", "0s")],
)
def test_invalid_pool_bounds_are_rejected(variable: str, value: str) -> None:
    name = f"HAREBELL_DATABASE_POOL_{variable}"

    with pytest.raises(InvalidInput) as refused:
        TickerSettings.load(URLS | {name: value})

    assert refused.value.field == name


@pytest.mark.requirement("S57")
def test_pool_bounds_come_from_settings() -> None:
    told = {"MIN": "2", "MAX": "3", "TIMEOUT": "5s"}

    settings = TickerSettings.load(
        URLS | {f"HAREBELL_DATABASE_POOL_{name}": value for name, value in told.items()}
    )

    assert settings.pool_bounds == PoolBounds(min_size=2, max_size=3, acquire_timeout=5.0)


@pytest.mark.requirement("S94")
@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"HAREBELL_LEASE_CRITICAL": "15s"}, "HAREBELL_LEASE, which is 15s, not 15s"),
        ({"HAREBELL_LEASE": "4s"}, "HAREBELL_LEASE, which is 4s, not 5s"),
        (
            {"HAREBELL_LEASE": "1m", "HAREBELL_LEASE_CRITICAL": "2m"},
            "HAREBELL_LEASE, which is 1m, not 2m",
        ),
    ],
)
def test_lease_of_critical_runs_must_be_shorter(told: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        ExecutorSettings.load(URLS | told)

    assert refused.value.field == "HAREBELL_LEASE_CRITICAL"


@pytest.mark.requirement("S94")
def test_both_leases_come_from_settings() -> None:
    told = {"HAREBELL_LEASE": "20s", "HAREBELL_LEASE_CRITICAL": "2s"}

    settings = ExecutorSettings.load(URLS | told)

    assert (settings.lease.total_seconds(), settings.lease_critical.total_seconds()) == (20, 2)


@pytest.mark.parametrize("variable", list(URLS))
def test_missing_required_setting_is_rejected_with_its_name(variable: str) -> None:
    told = {name: value for name, value in URLS.items() if name != variable}

    with pytest.raises(InvalidInput) as refused:
        TickerSettings.load(told)

    assert refused.value.field == variable


def test_value_comes_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "amqp_url"
    secret.write_text("amqp://guest:from-file@localhost/\n")
    told = {"HAREBELL_AMQP_URL_FILE": str(secret)}

    settings = TickerSettings.load(told | {"HAREBELL_DATABASE_URL": URLS["HAREBELL_DATABASE_URL"]})

    assert settings.amqp_url.get_secret_value() == "amqp://guest:from-file@localhost/"


def test_unreadable_file_is_rejected_with_its_variable(tmp_path: Path) -> None:
    told = URLS | {"HAREBELL_INSTANCE_ID_FILE": str(tmp_path / "missing")}

    with pytest.raises(InvalidInput) as refused:
        TickerSettings.load(told)

    assert refused.value.field == "HAREBELL_INSTANCE_ID_FILE"


def test_load_ignores_the_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAREBELL_HORIZON", "1h")

    assert TickerSettings.load(URLS).horizon.total_seconds() == 84


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("10.1.0.0/16", (ip_network("10.1.0.0/16"),)),
        (" 127.0.0.0/8, ::1/128 ,", (ip_network("127.0.0.0/8"), ip_network("::1/128"))),
    ],
)
def test_networks_are_separated_by_commas(text: str, expected: tuple[object, ...]) -> None:
    settings = ExecutorSettings.load(URLS | {"HAREBELL_ALLOWED_NETWORKS": text})

    assert settings.allowed_networks == expected


@pytest.mark.requirement("S15")
@pytest.mark.parametrize("text", ["acme.mail,acme.report", " acme.report\n acme.mail,\n"])
def test_known_tasks_are_separated_by_commas_or_lines(text: str) -> None:
    told = IntakeSettings.load(URLS | {"HAREBELL_KNOWN_TASKS": text})

    assert told.known_tasks == frozenset({"acme.mail", "acme.report"})
    assert IntakeSettings.load(URLS).known_tasks is None


@pytest.mark.requirement("P12")
def test_egress_has_the_networks_and_the_proxy_of_the_environment() -> None:
    settings = ExecutorSettings.load(
        URLS
        | {
            "HAREBELL_ALLOWED_NETWORKS": "10.0.0.0/8",
            "HAREBELL_DENIED_NETWORKS": "10.1.0.0/16",
            "HAREBELL_EGRESS_PROXY": "http://me:secret@proxy.example:3128",
        }
    )

    assert settings.egress == Egress((ip_network("10.0.0.0/8"),), (ip_network("10.1.0.0/16"),))
    assert settings.proxy_url == "http://me:secret@proxy.example:3128"
    assert "secret@" not in repr(settings)


def test_repr_hides_secrets() -> None:
    settings = TickerSettings.load(URLS)

    assert ":secret" not in f"{settings!r} {settings}"


@pytest.mark.requirement("P13")
@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        ("https://chat.example/hooks/abc", True),
        ("http://127.0.0.1:8080/hooks/abc", True),
        ("http://[::1]/hooks/abc", True),
        ("http://localhost/hooks/abc", True),
        ("http://chat.example/hooks/abc", False),
        ("http://10.0.0.1/hooks/abc", False),
        ("http://localhost.chat.example/hooks/abc", False),
    ],
)
def test_webhook_needs_https_except_on_loopback(url: str, *, is_valid: bool) -> None:
    variables = URLS | {"HAREBELL_ALERT_WEBHOOK_URL": url}

    if is_valid:
        settings = DlqInspectorSettings.load(variables)
        assert settings.alert_webhook_url is not None
        return
    with pytest.raises(InvalidInput) as refused:
        DlqInspectorSettings.load(variables)
    assert refused.value.field == "HAREBELL_ALERT_WEBHOOK_URL"
    assert "https" in refused.value.reason
    assert "abc" not in refused.value.reason


def test_failpoint_needs_the_permission_of_tests() -> None:
    failpoint = {"HAREBELL_FAILPOINT": "ticker.before_commit:kill"}

    with pytest.raises(InvalidInput, match="needs HAREBELL_TESTING=1") as refused:
        TickerSettings.load(URLS | failpoint)

    assert refused.value.field == "HAREBELL_FAILPOINT"
    permitted = TickerSettings.load(URLS | failpoint | {"HAREBELL_TESTING": "1"})
    assert permitted.failpoint == "ticker.before_commit:kill"
