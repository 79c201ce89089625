"""The windows of tenants: closed after 64 KiB, opened by credits, by a timeout and by a reset."""

from harebell.messaging.accepted_messages import CREDIT_TIMEOUT, WINDOW, TenantWindows

SHARED, ACME, OTHER = "harebell.intake", "harebell.intake.acme", "harebell.intake.umbrella"


class Time:
    """A monotonic time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def windows_with_credits(time: Time) -> TenantWindows:
    windows = TenantWindows(shared_queue=SHARED, now=time)
    windows.grant([])
    return windows


def test_full_window_closes_only_for_its_tenant() -> None:
    windows = windows_with_credits(Time())

    windows.reserve(ACME, WINDOW)

    assert not windows.admits(ACME, 0, 1)
    assert windows.admits(OTHER, 0, WINDOW)
    assert windows.admits(SHARED, 0, WINDOW)


def test_message_larger_than_the_window_is_admitted_alone() -> None:
    windows = windows_with_credits(Time())

    assert windows.admits(ACME, 0, 16 * WINDOW)
    assert not windows.admits(ACME, 1, 16 * WINDOW)


def test_credit_opens_the_window_once() -> None:
    windows = windows_with_credits(Time())
    first, second = windows.reserve(ACME, WINDOW // 2), windows.reserve(ACME, WINDOW // 2)
    assert first is not None
    assert second is not None

    windows.grant([first, first, 99])

    assert windows.admits(ACME, 0, WINDOW // 2)
    assert not windows.admits(ACME, 0, WINDOW // 2 + 1)


def test_lost_credit_opens_the_window_after_its_timeout() -> None:
    time = Time()
    windows = windows_with_credits(time)
    windows.reserve(ACME, WINDOW)

    time.seconds = CREDIT_TIMEOUT + 1

    assert windows.admits(ACME, 0, WINDOW)


def test_windows_admit_everything_before_the_first_credit() -> None:
    windows = TenantWindows(shared_queue=SHARED, now=Time())

    windows.reserve(ACME, WINDOW)

    assert windows.admits(ACME, 0, WINDOW)
    assert windows.reserve(SHARED, 1) is None
