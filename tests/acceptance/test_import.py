"""Schedules of Celery beat and of a crontab, imported, applied and executed."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest
from tests.acceptance.stack import Tenant, run_id
from tests.rig.celery_environment import installed_python
from tests.rig.command_line import Done, harebell
from tests.rig.polling import WAIT_TIMEOUT, until

from harebell.dev.pid_file import BackgroundProcess

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

APPLICATION: Final = """
import json, os
from celery import Celery
from celery.schedules import BaseSchedule, crontab

class Sunset(BaseSchedule):
    def __repr__(self):
        return "<sunset>"

print("an application may print while its module is imported")
app = Celery("shop", broker=os.environ["BROKER"])
app.conf.update(
    timezone="Europe/Berlin",
    task_default_queue="shop-mail",
    worker_enable_remote_control=False,
    beat_schedule={
        "remind": {
            "task": "shop.remind",
            "schedule": 1.0,
            "args": ["Zoë", [1, None]],
            "kwargs": {"urgent": True},
        },
        "nightly": {"task": "shop.remind", "schedule": crontab(minute="30", hour="22-2")},
        "evening": {"task": "shop.remind", "schedule": Sunset()},
    },
)

@app.task(bind=True, name="shop.remind", priority=4)
def remind(self, *args, **kwargs):
    request = self.request
    line = {
        "id": request.id,
        "root_id": request.root_id,
        "correlation_id": request.correlation_id,
        "retries": request.retries,
        "args": list(args),
        "kwargs": kwargs,
        "priority": request.delivery_info["priority"],
    }
    with open(os.environ["RECORD"], "a", buffering=1) as record:
        record.write(json.dumps(line) + "\\n")
"""
CRONTAB: Final = """
MAILTO=root
20/10 3 * * 1-5  root  /usr/bin/report --day | mail -s "100\\%" ops%dear ops
@reboot          root  /usr/bin/start
"""


async def command(tenant: Tenant, *words: str, stdin: str = "") -> Done:
    """Run a `harebell` command of the tenant, which imports the application of Celery."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await harebell(
            *words,
            stdin=stdin,
            HAREBELL_AMQP_URL=tenant.stack.amqp_url,
            HAREBELL_TENANT=tenant.name,
            BROKER="memory://",
        )


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def record(tenant: Tenant, tmp_path: Path) -> Iterator[Path]:
    """Start a worker of Celery. Yield the file with a line for each executed task."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    path = tmp_path / "record"
    path.touch()
    worker = BackgroundProcess("celery", tmp_path)
    python = str(installed_python(os.environ))
    options = ("--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat")
    environment = {"BROKER": tenant.stack.amqp_url, "RECORD": str(path), "PATH": os.environ["PATH"]}
    try:
        worker.start(
            (python, "-m", "celery", "--app", "shop", "worker", "--loglevel", "INFO", *options),
            environment=environment,
            directory=tmp_path,
        )
        worker.await_ready(lambda: b" ready." in worker.log.read_bytes(), limit=WAIT_TIMEOUT)
        yield path
    finally:
        worker.kill()


@pytest.mark.long
async def test_celery_worker_executes_imported_entries(
    tenant: Tenant, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(record.parent)
    python = str(installed_python(os.environ))

    code, manifests, messages = await command(
        tenant, "import", "celery", "shop:app", "--python", python
    )
    applied, _, error = await command(
        tenant, "apply", "-f", "-", "--owner", "shop", stdin=manifests
    )

    async def lines() -> list[str]:
        found = lines_of(record)
        return found if len(found) > 1 else []

    tasks = [orjson.loads(each) for each in await until(lines, what="two executed tasks")]
    await tenant.harebell.pause(key="remind")
    assert (code, applied, error) == (4, 0, "")
    assert "'evening' has no manifest: it has the schedule <sunset>." in messages
    runs = {
        run_id(str(run["schedule_id"]), run["scheduled_for"])
        for run in await tenant.until_runs(2, "succeeded")
    }
    assert {each["id"] for each in tasks[:2]} <= runs
    assert len({each["id"] for each in tasks}) == len(tasks)
    for task in tasks:
        assert task == {
            "id": task["id"],
            "root_id": task["id"],
            "correlation_id": task["id"],
            "retries": 0,
            "args": ["Zoë", [1, None]],
            "kwargs": {"urgent": True},
            "priority": 4,
        }
    nightly = await tenant.harebell.schedule(key="nightly")
    assert nightly.definition["when"]["cron"] == "30 0,1,2,22,23 * * *"


async def test_imported_crontab_is_applied(tenant: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text(CRONTAB)
    options = ("--system", "--timezone", "Europe/Berlin", "--task", "harebell.echo")

    code, manifests, messages = await command(tenant, "import", "crontab", str(file), *options)
    applied, _, error = await command(
        tenant, "apply", "-f", "-", "--owner", "cron", stdin=manifests
    )
    repeated, text, _ = await command(
        tenant, "apply", "-f", "-", "--owner", "cron", "-o", "json", stdin=manifests
    )

    assert (code, applied, error, repeated) == (4, 0, "", 0)
    assert [each["action"] for each in orjson.loads(text)] == ["keep"]
    assert all(part in messages for part in ("@reboot", "MAILTO", "user root"))
    (view,) = [each async for each in tenant.harebell.schedules(owner="cron")]
    stored = await tenant.harebell.schedule(key=view.key)
    assert stored.definition["when"]["cron"] == "20/10 3 * * 1-5"
    assert stored.definition["target"]["task"]["args"] == {
        "command": '/usr/bin/report --day | mail -s "100%" ops',
        "stdin": "dear ops\n",
    }
