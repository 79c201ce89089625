"""The health endpoints of a service during an outage."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from tests.rig.polling import until
from tests.rig.servers import as_role
from tests.rig.tcp_proxy import TcpProxy

from harebell.bootstrap.service_context import MAX_CLOCK_AGE, open_service
from harebell.dev.ports import choose_ports
from harebell.runtime.settings import ServiceSettings

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

NOTICED = MAX_CLOCK_AGE + 15.0  # seconds


@pytest.mark.long
@pytest.mark.requirement("S91")
async def test_service_without_its_database_is_live_and_not_ready(
    amqp_url: str, database_url: str, tmp_path: Path
) -> None:
    port = choose_ports(["health"], seed=str(tmp_path), remembered={})["health"]
    stop = asyncio.Event()

    async def get(path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port}/{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def unready() -> str | None:
        status, said = await get("readyz")
        return said if status == 503 else None

    async with TcpProxy.open(as_role(database_url, "dispatcher")) as line:
        settings = ServiceSettings.load(
            {
                "HAREBELL_AMQP_URL": amqp_url,
                "HAREBELL_DATABASE_URL": line.url,
                "HAREBELL_HTTP_PORT": str(port),
                "HAREBELL_TOPOLOGY_MODE": "declare",
            }
        )
        async with open_service(settings, "dispatcher", stop) as parts:
            keeping = asyncio.create_task(parts.run())
            before = await get("readyz"), (await get("metrics"))[1]
            await line.close()
            said = await until(unready, within=NOTICED, what="a service that is not ready")
            after = await get("livez"), (await get("metrics"))[1]
            keeping.cancel()

    assert before[0] == (200, "[+] broker\n[+] database\n")
    assert 'harebell_ready{check="database"} 1.0' in before[1]
    assert said == "[+] broker\n[-] database\n"
    assert after[0] == (200, "ok\n")
    assert 'harebell_ready{check="database"} 0.0' in after[1]
    assert 'harebell_ready{check="broker"} 1.0' in after[1]
