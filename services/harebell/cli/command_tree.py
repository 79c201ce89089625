"""The tree of all commands: the module and the short help of each command.

A group shows its help and completes names from this tree, without an import of a command.
A test compares the help with that of the imported commands.
"""

from typing import Final

from harebell.cli.framework.lazy_commands import CommandEntry, CommandTree, GroupEntry

_SCHEDULE: Final = "harebell.cli.schedule"
_DLQ: Final = "harebell.cli.dlq"

_WHY: Final = CommandEntry(
    "harebell.cli.why",
    "Explain what happened, or will happen, at a scheduled time, and the reason.",
)
_SCHEDULE_COMMANDS: Final[CommandTree] = {
    "put": CommandEntry(
        f"{_SCHEDULE}.manage",
        "Create or replace schedules from a file (one object, or an array of up to 500).",
    ),
    "get": CommandEntry(
        f"{_SCHEDULE}.manage",
        "Print one schedule with its definition, its state, its next time and its last run.",
    ),
    "list": CommandEntry(
        f"{_SCHEDULE}.manage", "List the schedules that match all filters, newest first."
    ),
    "patch": CommandEntry(
        f"{_SCHEDULE}.manage",
        "Change some fields of a schedule and leave the other fields unchanged.",
    ),
    "delete": CommandEntry(
        f"{_SCHEDULE}.manage",
        "Remove an ended schedule from the lists. Its versions and its runs stay readable.",
    ),
    "trigger": CommandEntry(
        f"{_SCHEDULE}.manage", "Stage one manual run at once, in addition to the recurrence."
    ),
    "skip": CommandEntry(f"{_SCHEDULE}.manage", "Skip the run of one scheduled time."),
    "backfill": CommandEntry(
        f"{_SCHEDULE}.manage", "Stage manual runs for past scheduled times that have no run."
    ),
    "pause": CommandEntry(
        f"{_SCHEDULE}.pause_resume_cancel",
        "Pause one schedule, or all schedules that match a filter.",
    ),
    "resume": CommandEntry(
        f"{_SCHEDULE}.pause_resume_cancel",
        "Resume one schedule, all schedules that match a filter, or those of a bulk operation.",
    ),
    "cancel": CommandEntry(
        f"{_SCHEDULE}.pause_resume_cancel",
        "Cancel one schedule permanently, or all schedules that match a filter.",
    ),
    "preview": CommandEntry(
        f"{_SCHEDULE}.preview",
        "Print the next scheduled times of a stored schedule, an expression or a file.",
    ),
    "why": _WHY,
    "history": CommandEntry(
        f"{_SCHEDULE}.history",
        "List the versions of a schedule, newest first, with their status and their actor.",
    ),
    "diff": CommandEntry(f"{_SCHEDULE}.history", "Print the differences of two versions."),
    "rollback": CommandEntry(
        f"{_SCHEDULE}.history", "Create a new version with the definition of an older version."
    ),
}
_RUN_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry("harebell.cli.run", "List the runs that match all filters, newest first."),
    "get": CommandEntry("harebell.cli.run", "Print one run with its attempts."),
    "watch": CommandEntry(
        "harebell.cli.run",
        "Follow one run until its end, with its progress. The exit code is 1 unless it succeeds.",
    ),
    "cancel": CommandEntry("harebell.cli.run", "Cancel a run that has not started."),
    "resolve": CommandEntry("harebell.cli.run", "Resolve an unresolved run."),
}
_GET_DEAD_LETTER: Final = "Print one dead letter with its attempts and replays."
_DISCARD: Final = "Discard dead letters without a replay."
_GROUP_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry(f"{_DLQ}.groups", "List the failure groups, the latest failure first."),
    "note": CommandEntry(f"{_DLQ}.groups", "Replace the note of a failure group."),
    "mute": CommandEntry(
        f"{_DLQ}.groups",
        "Mute failure groups, so that the list of groups and the alerts omit them for a time.",
    ),
    "archive": CommandEntry(f"{_DLQ}.groups", "Archive failure groups until they fail again."),
    "reopen": CommandEntry(f"{_DLQ}.groups", "Reopen failure groups that are muted or archived."),
}
_REPLAY_JOB_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry(
        f"{_DLQ}.replays", "List the replay jobs with their progress, newest first."
    ),
    "get": CommandEntry(f"{_DLQ}.replays", "Print one replay job."),
    "pause": CommandEntry(
        f"{_DLQ}.replays", "Pause a replay job, so that it replays no dead letters until a resume."
    ),
    "resume": CommandEntry(
        f"{_DLQ}.replays", "Resume a paused replay job at its next dead letter."
    ),
    "abort": CommandEntry(f"{_DLQ}.replays", "Abort a replay job permanently."),
}
_DLQ_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry(
        f"{_DLQ}.dead_letters", "List the dead letters that match all filters, newest first."
    ),
    "get": CommandEntry(f"{_DLQ}.dead_letters", _GET_DEAD_LETTER),
    "show": CommandEntry(f"{_DLQ}.dead_letters", _GET_DEAD_LETTER, is_hidden=True),
    "discard": CommandEntry(f"{_DLQ}.dead_letters", _DISCARD),
    "drop": CommandEntry(f"{_DLQ}.dead_letters", _DISCARD, is_hidden=True),
    "replay": CommandEntry(
        f"{_DLQ}.replay",
        "Replay dead runs: dead letters by id at once, or a selection as a replay job.",
    ),
    "edit": CommandEntry(
        f"{_DLQ}.edit",
        "Replace a dead letter by a copy with another target, and print the id of the copy.",
    ),
    "export": CommandEntry(
        f"{_DLQ}.export_import",
        "Write whole dead letters to stdout, one JSON object on each line.",
    ),
    "import": CommandEntry(f"{_DLQ}.export_import", "Import exported dead letters."),
    "watch": CommandEntry(f"{_DLQ}.watch", "Print new dead letters as they arrive, until Ctrl-C."),
    "parked": CommandEntry(
        f"{_DLQ}.dead_letters", "Print the dead letters that cannot be stored, the oldest first."
    ),
    "groups": GroupEntry("List, note, mute, archive and reopen failure groups.", _GROUP_COMMANDS),
    "replays": GroupEntry(
        "List, print, pause, resume and abort replay jobs.", _REPLAY_JOB_COMMANDS
    ),
}
_BREAKER_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry(
        "harebell.cli.breaker",
        "List the breakers that are open, half open or forced, or that closed within the last "
        "hour.",
    ),
    "open": CommandEntry(
        "harebell.cli.breaker",
        "Open a breaker by force, so that every run of TARGET is deferred and uses no attempt.",
    ),
    "close": CommandEntry(
        "harebell.cli.breaker",
        "Close a breaker by force, so that no run of TARGET is deferred after failures.",
    ),
    "reset": CommandEntry(
        "harebell.cli.breaker",
        "Reset a forced breaker, so that the outcomes of attempts decide its state again.",
    ),
}
_CALENDAR_COMMANDS: Final[CommandTree] = {
    "put": CommandEntry(
        "harebell.cli.calendar.manage",
        "Create or replace a calendar, and print how many schedules this changes.",
    ),
    "get": CommandEntry(
        "harebell.cli.calendar.manage", "Print one calendar with its days and its weekly hours."
    ),
    "list": CommandEntry(
        "harebell.cli.calendar.manage", "List the calendars of the tenant, by name."
    ),
    "delete": CommandEntry(
        "harebell.cli.calendar.manage", "Delete a calendar that no schedule uses."
    ),
}
_TOPOLOGY_COMMANDS: Final[CommandTree] = {
    "check": CommandEntry(
        "harebell.cli.topology",
        "Print each part of the topology that the broker lacks or has differently.",
    ),
    "definitions": CommandEntry(
        "harebell.cli.topology",
        "Print a definitions file for RabbitMQ with the topology, the users and their permissions.",
    ),
    "manifests": CommandEntry(
        "harebell.cli.topology",
        "Print the topology as objects of RabbitMQ's operators for Kubernetes (YAML or JSON).",
    ),
}
_WEBHOOK_COMMANDS: Final[CommandTree] = {
    "verify": CommandEntry("harebell.cli.webhook", "Verify the signature of a captured call."),
    "keygen": CommandEntry(
        "harebell.cli.webhook",
        "Make a signing key in a new file, and print the public key of a key pair.",
    ),
}
_TENANT_COMMANDS: Final[CommandTree] = {
    "check": CommandEntry(
        "harebell.cli.tenants",
        "Check a document of tenant policies, and print what each tenant may use.",
    ),
    "usage": CommandEntry(
        "harebell.cli.tenants",
        "List the quotas of the tenant, their use, and what was refused within the last hour.",
    ),
}
_ARCHIVE_COMMANDS: Final[CommandTree] = {
    "list": CommandEntry("harebell.cli.archive", "List the days of an archive with their sizes."),
    "verify": CommandEntry(
        "harebell.cli.archive", "Compare the files of an archive with their manifests."
    ),
    "show": CommandEntry(
        "harebell.cli.archive", "Print the archived runs that match all filters, with attempts."
    ),
}
_IMPORT_COMMANDS: Final[CommandTree] = {
    "celery": CommandEntry(
        "harebell.cli.imports.celery",
        "Write the entries of Celery beat in the form that `apply` reads (YAML, or JSON).",
    ),
    "crontab": CommandEntry(
        "harebell.cli.imports.crontab",
        "Write the lines of a crontab in the form that `apply` reads (YAML, or JSON with -o json).",
    ),
}
_DEV_COMMANDS: Final[CommandTree] = {
    "start": CommandEntry(
        "harebell.cli.dev", "Start the servers and the services, and return when all are ready."
    ),
    "stop": CommandEntry("harebell.cli.dev", "Stop every process of the stack and keep its data."),
    "status": CommandEntry("harebell.cli.dev", "Print every process."),
    "logs": CommandEntry(
        "harebell.cli.dev", "Print the last lines of the logs of services and servers."
    ),
}
COMMAND_TREE: Final[CommandTree] = {
    "schedule": GroupEntry("Create, read, change and trigger schedules.", _SCHEDULE_COMMANDS),
    "run": GroupEntry(
        "List, print and follow runs, cancel a run, resolve an unresolved run.", _RUN_COMMANDS
    ),
    "why": _WHY,
    "dlq": GroupEntry("List, print, edit, replay and discard dead letters.", _DLQ_COMMANDS),
    "breaker": GroupEntry(
        "List, open, close and reset the circuit breakers of downstreams.", _BREAKER_COMMANDS
    ),
    "calendar": GroupEntry(
        "Create, read and delete the calendars that schedules use.", _CALENDAR_COMMANDS
    ),
    "forecast": CommandEntry(
        "harebell.cli.forecast.forecast",
        "Print the number of runs in each hour, recorded and planned, as a heat map.",
    ),
    "top": CommandEntry(
        "harebell.cli.top.top",
        "Show the lanes, the lateness, the backlog, the breakers and the dead letters now.",
    ),
    "apply": CommandEntry(
        "harebell.cli.manifests.apply", "Make the schedules of one owner equal to files."
    ),
    "export": CommandEntry(
        "harebell.cli.manifests.export",
        "Write schedules in the form that `apply` reads (YAML, or JSON with -o json).",
    ),
    "import": GroupEntry("Convert schedules of other programs to files.", _IMPORT_COMMANDS),
    "audit": CommandEntry("harebell.cli.audit", "Compare the required runs with the ledger."),
    "archive": GroupEntry("List, verify and print the archive of runs.", _ARCHIVE_COMMANDS),
    "tenants": GroupEntry(
        "Check the document of tenant policies, and list the use of quotas.", _TENANT_COMMANDS
    ),
    "doctor": CommandEntry(
        "harebell.cli.doctor.doctor",
        "Check the broker, the database and the services, and say how to mend each fault.",
    ),
    "topology": GroupEntry("Print the topology, or compare it with a broker.", _TOPOLOGY_COMMANDS),
    "webhook": GroupEntry("Verify signed calls and make signing keys.", _WEBHOOK_COMMANDS),
    "dev": GroupEntry(
        "Start, stop and inspect the local stack: servers and services on loopback.",
        _DEV_COMMANDS,
    ),
}
