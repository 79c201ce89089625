"""Writing the changes of a unit of work, and the versions that a plan puts in force."""

from collections.abc import Sequence

import asyncpg

from harebell.storage.runs import staging
from harebell.ticker.model import run_rows
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.store import calendars, versions


async def save_unit_of_work(connection: asyncpg.Connection, unit: UnitOfWork) -> None:
    """Write the versions and the changed runs of the unit."""
    await versions.save_versions(connection, unit.new_versions)
    await versions.record_handovers(connection, unit.handovers)
    await versions.save_active_versions(connection, unit.versions_in_force)
    await calendars.delete_uses(connection, unit.unused_calendars)
    await calendars.save_uses(connection, (version for version, _ in unit.new_versions))
    await calendars.save_calendars(connection, unit.new_calendars)
    await staging.cancel(connection, unit.cancelled_runs)
    await staging.request_stop(connection, unit.stop_requests)
    moved = [run_rows.moved_run_row(*each) for each in unit.moved_to_version.items()]
    await staging.move_to_version(connection, moved, unit.new_due_times)
    await staging.resolve(connection, unit.resolved_runs)
    dropped = [run_rows.dropped_run_row(*each) for each in unit.dropped_manual_runs]
    await staging.skip(connection, dropped)
    await versions.update_statuses(connection, unit.version_statuses)


async def save_activations(connection: asyncpg.Connection, steps: Sequence[PlanningStep]) -> None:
    """Write the pending versions that became active or failed."""
    activated = [
        each.record.version for each in steps if each.record.version is not each.previous.version
    ]
    await versions.save_active_versions(connection, activated)
    statuses = {key: value for each in steps for key, value in each.version_statuses.items()}
    await versions.update_statuses(connection, statuses)
    handovers = [each.handover for each in steps if each.handover is not None]
    await versions.record_handovers(connection, handovers)
