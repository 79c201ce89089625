"""`harebell forecast`: the heat map in terminals of several widths, as JSON, SVG and HTML."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import NOW, CommandLine, FakeBroker

from harebell.cli.forecast.heat import (
    LEVELS,
    MAX_CALENDARS,
    level_of,
    short_duration,
    short_number,
)
from harebell.cli.forecast.page import STYLE, forecast_html, forecast_svg
from harebell.cli.forecast.terminal import forecast_lines
from harebell.contract.views import ForecastCalendar, ForecastGroup, ForecastView

HOUR = timedelta(hours=1)
POOLS = ("default", "reports", "mail", "billing-europe-west", "<b>\x1b[31m", "web", "exports")


def view(hours: int = 24, pools: tuple[str, ...] = POOLS) -> ForecastView:
    """Return a forecast from four hours ago on, in which every fifth hour is quiet."""
    start = NOW - 4 * HOUR
    of_hours = [0 if n % 5 == 0 else 7 ** (n % 5) for n in range(hours)]
    counts = [[(p + 1) * each for each in of_hours] for p in range(len(pools))]
    runs = [sum(each) for each in zip(*counts, strict=True)]
    starts = [start + n * HOUR for n in range(hours)]
    late = [12.5 if each < NOW else None for each in starts]
    return ForecastView(
        at=NOW,
        from_=start,
        to=start + hours * HOUR,
        by="pool",
        hours=starts,
        runs=list(runs),
        late_p50_ms=late,
        late_p99_ms=late,
        groups=[
            ForecastGroup(name=name, total=sum(each), runs=list(each))
            for name, each in zip(pools, counts, strict=True)
        ],
        quiet_hours=[hour for hour, count in zip(starts, runs, strict=True) if not count],
        notes=["A note that explains at length why some schedules are not in this forecast."],
    )


def response_of(forecast: ForecastView) -> dict[str, Any]:
    return forecast.model_dump(mode="json", by_alias=True, exclude_none=False)


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = [line.plain for line in forecast_lines(view(), width=width, can_shade=True)]

    assert max(map(len, lines)) <= width
    assert len([line for line in lines if re.match(r"(Fri|Sat) \d\d \d\d:00", line)]) == 24


def test_groups_that_do_not_fit_are_summed_in_the_last_column() -> None:
    narrow = [line.plain for line in forecast_lines(view(), width=80, can_shade=True)]
    wide = [line.plain for line in forecast_lines(view(), width=132, can_shade=True)]

    assert narrow[0].split()[-3:] == ["reports", "mail", "others"]
    assert "others" not in wide[0]
    # 7 runs in the first pool, 14 and 21 in the next ones, and the other four pools.
    counts = [word for word in narrow[2].split()[3:] if word.isdigit()]
    assert counts == ["196", "7", "14", "21", "154"]


@pytest.mark.requirement("ASK-9", "ASK-3")
def test_lines_name_the_calendars_that_exclude_or_hold_back_times() -> None:
    calendars = [
        ForecastCalendar(name="closed", tenant="acme", excluded=1, held=1_200),
        *(ForecastCalendar(name=f"c{n}", tenant="acme", held=1) for n in range(MAX_CALENDARS)),
    ]
    forecast = view().model_copy(update={"calendars": calendars})

    lines = [line.plain for line in forecast_lines(forecast, width=132, can_shade=True)]

    assert "The calendar closed excludes 1 time and holds back 1.2k times." in lines
    assert "1 more calendars exclude or hold back fewer times." in lines


def test_terminal_without_unicode_shows_ascii() -> None:
    lines = [line.plain for line in forecast_lines(view(), width=80, can_shade=False)]

    assert all(line.isascii() for line in lines)
    assert any("::: " in line for line in lines)


def test_names_of_groups_cannot_change_the_terminal() -> None:
    lines = [line.plain for line in forecast_lines(view(), width=132, can_shade=True)]

    assert not any("\x1b" in line for line in lines)


def test_levels_grow_with_the_count() -> None:
    levels = [level_of(count, 100_000) for count in (0, 1, 10, 100, 1_000, 10_000, 100_000)]

    assert levels == sorted(levels)
    assert (levels[0], levels[1], levels[-1]) == (0, 1, LEVELS)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (84_321, "84k"), (999_950, "1.0M"), (None, "?")],
)
def test_numbers_are_short(count: int | None, text: str) -> None:
    assert short_number(count) == text


def test_durations_are_short() -> None:
    assert [short_duration(each) for each in (None, 0.4, 850, 1_200, 95_000)] == [
        "",
        "0ms",
        "850ms",
        "1.2s",
        "95s",
    ]


@pytest.mark.parametrize("hours", [24, 168])
def test_svg_is_complete_and_loads_no_other_file(hours: int) -> None:
    image = forecast_svg(view(hours))

    root = ET.fromstring(image)  # noqa: S314  # made above
    cells = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("rx")]
    assert len(cells) == hours * (len(POOLS) + 1) + LEVELS + 1
    assert "<b>" not in image
    assert not re.search(r"(href|src|url\(|@import)", image)
    assert "prefers-color-scheme: dark" in image


def test_html_contains_the_image_the_quiet_hours_and_the_notes() -> None:
    page = forecast_html(view())

    assert "<svg" in page
    assert "Quiet hours (UTC): Fri 20 10:00, " in page
    assert "A note that explains" in page
    assert not re.search(r"(href|src|url\(|@import)", page)


@pytest.mark.parametrize("block", STYLE.split("@media"))
def test_numbers_have_enough_contrast_in_both_forms(block: str) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))

    ratios = [contrast(colours[f"f{n}"], colours[f"t{n}"]) for n in range(1, LEVELS + 1)]
    ratios.append(contrast(colours["page"], colours["soft"]))

    assert min(ratios) >= 4.5


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_forecast_of_all_tenants_is_the_default(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: response_of(view())

    result = cli("--tenant", "acme", "forecast", "--from", "4h", "--by", "tenant")

    request = broker.requests[0]
    assert (request.tenant, request.verb) == ("harebell", "run.forecast")
    assert request.body == {"from": "2026-11-20T10:00:00Z", "by": "tenant"}
    assert "The busiest hour is" in result.stdout


def test_own_forecast_belongs_to_the_tenant(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: response_of(view())

    cli("--tenant", "acme", "forecast", "--own", "--to", "2h")

    assert broker.requests[0].tenant == "acme"
    assert broker.requests[0].body["to"] == "2026-11-20T16:00:00Z"


def test_forecast_as_json_has_every_field(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: response_of(view())

    result = cli("forecast", "-o", "json")

    assert '"quiet_hours"' in result.stdout
    assert '"late_p99_ms"' in result.stdout


def test_files_are_written_instead_of_the_map(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.respond = lambda _: response_of(view())
    svg, html = tmp_path / "map.svg", tmp_path / "map.html"

    result = cli("forecast", "--svg", str(svg), "--html", str(html))

    assert svg.read_text().startswith("<svg")
    assert html.read_text().startswith("<!doctype html>")
    assert result.stdout == ""


def test_unwritable_file_is_named(cli: CommandLine, broker: FakeBroker, tmp_path: Path) -> None:
    broker.respond = lambda _: response_of(view())

    result = cli("forecast", "--svg", str(tmp_path / "missing" / "map.svg"))

    assert result.exit_code == 2
    assert "missing/map.svg cannot be written" in result.stderr
    assert datetime(2026, 11, 20, 14, tzinfo=UTC) == NOW
