"""Rows of responses with every required field. A test overrides the fields that it checks."""

from typing import Any

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
OTHER_ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e12"
JOB_ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e13"
RUN_ID = f"{ID}@20261120T140000000Z"
TIME = "2026-11-20T13:00:00Z"
TASK = {"task": {"name": "acme.report"}}


def schedule_row(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "key": "daily",
        "tenant": "default",
        "class": "standard",
        "priority": 5,
        "pool": "default",
        "state": "active",
        "version": 1,
        "tags": [],
        "created_at": TIME,
        "updated_at": TIME,
        **fields,
    }


def version_row(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "version": number,
        "accepted_at": TIME,
        "effective_at": TIME,
        "status": "active",
        "actor": "ann",
        "in_force": False,
        "definition": {},
        **fields,
    }


def run_row(**fields: Any) -> dict[str, Any]:
    return {
        "run_id": RUN_ID,
        "schedule_id": ID,
        "key": "daily",
        "scheduled_for": TIME,
        "due_at": TIME,
        "state": "succeeded",
        "attempt": 1,
        "pool": "default",
        "lane": "normal",
        "version": 1,
        **fields,
    }


def attempt_row(**fields: Any) -> dict[str, Any]:
    return {
        "replay_number": 0,
        "number": 1,
        "finished_at": TIME,
        "outcome": "failed",
        **fields,
    }


def dead_letter_row(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "kind": "run",
        "tenant": "default",
        "reason": "attempts_exhausted",
        "attempts": 1,
        "dead_at": TIME,
        "state": "open",
        **fields,
    }


def group_row(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "state": "open",
        "open": 7,
        "dead_letters": 9,
        "trend": "rising",
        "last_hour": 4,
        "hour_before": 2,
        "first_at": TIME,
        "last_at": TIME,
        "target": "http POST acme.example:443",
        "error_code": "http_503",
        "message": "<n> Service Unavailable",
        **fields,
    }


def replay_job_row(state: str, **counts: int) -> dict[str, Any]:
    return {
        "id": JOB_ID,
        "state": state,
        "total": 7,
        "taken": 0,
        "replayed": 0,
        "succeeded": 0,
        "failed": 0,
        "rejected": 0,
        "remaining": 7,
        "created_at": TIME,
        "request": {"all": True},
        **counts,
    }
