"""The dashboard for the question what failed, and what a person has to do."""

from typing import Final

from tests.tools.dashboards.panel import (
    Dashboard,
    Panel,
    Query,
    Row,
    Unit,
    rate,
    shared,
    total,
)

_RUNS: Final = Row(
    title="Runs and attempts",
    panels=(
        Panel(
            title="Failed attempts",
            description="Attempts that failed, and attempts whose executor did not respond.",
            unit=Unit.PER_SECOND,
            queries=(
                rate(
                    "harebell_attempts_total",
                    "outcome",
                    selector='{outcome=~"failed|lease_expired|cancelled"}',
                ),
            ),
        ),
        Panel(
            title="Runs that did not succeed",
            description="The reason tells whether a person, a limit or a failure ended the run.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_runs_total", "state", "reason", selector='{state!="succeeded"}'),
            ),
        ),
        Panel(
            title="Rejected tickets and completions",
            description="Late copies of a ticket or a completion that the ledger has rejected.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_stale_tickets_total"),
                rate("harebell_orphan_tickets_total"),
                rate("harebell_fenced_completions_total"),
            ),
        ),
    ),
)

_DEAD_LETTERS: Final = Row(
    title="Dead letters",
    panels=(
        Panel(
            title="New, replayed and deleted",
            description="New dead letters by kind, and what people and the retention did.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_dead_letters_total", "kind"),
                rate("harebell_replayed_runs_total"),
                rate("harebell_dead_letters_deleted_total", "reason"),
            ),
        ),
        Panel(
            title="Open dead letters",
            description="Dead letters that wait for a person or cannot be stored, and replay jobs "
            "without progress.",
            unit=Unit.NUMBER,
            queries=(
                shared("harebell_dead_letters_open"),
                shared("harebell_dead_letters_parked"),
                shared("harebell_replay_jobs_stalled"),
            ),
        ),
        Panel(
            title="Alerts without Prometheus",
            description="Alerts that the dlq_inspector published and posted to its webhook.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_alerts_total", "alert"),
                rate("harebell_alerts_posted_total", "result"),
            ),
        ),
    ),
)

_BREAKERS: Final = Row(
    title="Breakers",
    panels=(
        Panel(
            title="Breakers that are not closed",
            description="The number of downstreams by the state of their breaker.",
            unit=Unit.NUMBER,
            queries=(total("harebell_breakers", "state"),),
        ),
        Panel(
            title="Downstreams with a breaker",
            description="Each downstream whose breaker defers runs, at most 100 of them.",
            unit=Unit.NUMBER,
            queries=(Query("max by (downstream) (harebell_breaker_open)", "{{downstream}}"),),
        ),
        Panel(
            title="Deferred tickets",
            description="Tickets that wait in a dispatcher because of a breaker.",
            unit=Unit.NUMBER,
            queries=(total("harebell_deferred_tickets", "gate"),),
        ),
    ),
)

_TENANTS: Final = Row(
    title="Tenants",
    panels=(
        Panel(
            title="Refused messages",
            description="Messages with a foreign sender, a foreign route or a foreign reply queue.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_refused_messages_total", "code"),),
        ),
        Panel(
            title="Refusals of the tenant policy",
            description="Commands and attempts that a rule or a quota of the policy refused.",
            unit=Unit.PER_SECOND,
            queries=(rate("harebell_policy_refusals_total", "code", "rule"),),
        ),
        Panel(
            title="Validity of the tenant policy",
            description="At 0, the newest document is invalid and an older one is in force.",
            unit=Unit.NUMBER,
            queries=(Query("min by (job) (harebell_tenant_policies_valid)", "{{job}}"),),
        ),
        Panel(
            title="Old time zone data",
            description="At 1, a service uses time zone data of this version, which are old.",
            unit=Unit.NUMBER,
            queries=(
                Query("max by (job, version) (harebell_tzdata_outdated)", "{{job}} {{version}}"),
            ),
        ),
        Panel(
            title="Omitted events and conflicts",
            description="Rejections without an event, dropped replies, dead letters with the id "
            "of another one, and failed background loops.",
            unit=Unit.PER_SECOND,
            queries=(
                rate("harebell_omitted_events_total"),
                rate("harebell_dropped_replies_total", "reason"),
                rate("harebell_dead_letter_conflicts_total"),
                rate("harebell_loop_failures_total", "loop"),
            ),
        ),
    ),
)

FAILURES: Final = Dashboard(
    name="failures",
    title="Harebell / Failures",
    rows=(_RUNS, _DEAD_LETTERS, _BREAKERS, _TENANTS),
)
