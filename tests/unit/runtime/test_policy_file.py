"""The keeper of the tenant policies: its start, its reloads, and the faults of documents."""

from pathlib import Path

import pytest

from harebell.contract.errors import InvalidInput
from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime import metrics
from harebell.runtime.policy_file import MAX_FILE_SIZE, RELOAD_INTERVAL, PolicyKeeper

WITHOUT_FILE = TenantPolicies.unrestricted()
GOOD = "tenants:\n  acme: {pools: [fast]}\n"
BAD = "tenants:\n  acme:\n    pool: [fast]\n"


async def keeper_of(path: Path) -> PolicyKeeper:
    return await PolicyKeeper.open(path, WITHOUT_FILE)


def validity() -> float | None:
    (family,) = metrics.TENANT_POLICIES_VALID.collect()
    return family.samples[0].value


async def test_keeper_without_a_file_has_the_policies_without_a_file() -> None:
    keeper = await PolicyKeeper.open(None, WITHOUT_FILE)

    await keeper.run()

    assert validity() == 1
    assert keeper.current is WITHOUT_FILE
    assert (keeper.has_file, keeper.fault) == (False, None)


async def test_changed_document_replaces_the_policies(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(GOOD)
    keeper = await keeper_of(path)
    first = keeper.current
    await keeper.reload()
    assert keeper.current is first

    path.write_text(GOOD.replace("fast", "slow"))
    await keeper.reload()

    assert (first.of("acme").pools, keeper.current.of("acme").pools) == (("fast",), ("slow",))
    assert RELOAD_INTERVAL < 5


@pytest.mark.parametrize("text", [BAD, "a: [", GOOD + "# " + "x" * MAX_FILE_SIZE])
async def test_invalid_document_prevents_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)

    with pytest.raises(InvalidInput) as refused:
        await keeper_of(path)

    assert refused.value.field == "HAREBELL_TENANTS_FILE"
    assert str(path) in refused.value.reason


async def test_missing_file_prevents_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        await keeper_of(tmp_path / "absent.yaml")


async def test_invalid_document_leaves_the_last_valid_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(GOOD)
    keeper = await keeper_of(path)
    valid, policies = validity(), keeper.current

    path.write_text(BAD)
    await keeper.reload()

    assert keeper.current is policies
    assert "line 3, tenants.acme.pool: " in (keeper.fault or "")
    assert (valid, validity()) == (1, 0)
    path.write_text(GOOD)
    await keeper.reload()
    assert (keeper.fault, validity()) == (None, 1)


async def test_removed_file_leaves_the_policies_until_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(GOOD)
    keeper = await keeper_of(path)

    path.unlink()
    await keeper.reload()
    fault = keeper.fault
    path.write_text(GOOD)
    await keeper.reload()

    assert "cannot be read" in (fault or "")
    assert keeper.fault is None
    assert keeper.current.of("acme").pools == ("fast",)
