"""The keeper of the tenant policies, which reads their document again when it changes."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog

from harebell.contract.errors import InvalidInput
from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime import metrics
from harebell.runtime.yaml_document import parse_yaml

SETTING: Final = "HAREBELL_TENANTS_FILE"
RELOAD_INTERVAL: Final = 2.0  # seconds between two reads of the file
MAX_FILE_SIZE: Final = 1024 * 1024  # bytes

log = structlog.get_logger()


def parse_policies(body: bytes) -> TenantPolicies:
    """Return the policies of a document.

    Raise `InvalidInput` with the field of the first fault. The reason contains the line.
    """
    if len(body) > MAX_FILE_SIZE:
        reason = f"The document must have at most {MAX_FILE_SIZE} bytes."
        raise InvalidInput(reason, code="too_large")
    document = parse_yaml(body)
    try:
        return TenantPolicies.parse(document.value)
    except InvalidInput as error:
        line, field = document.line_of(error.field), error.field or "the document"
        place = field if line is None else f"line {line}, {field}"
        raise InvalidInput(f"{place}: {error.reason}", field=error.field, code=error.code) from None


class PolicyKeeper:
    """The policies in force, which are those of the last valid document.

    Without a file, `without_file` is in force.
    """

    def __init__(self, path: Path | None, without_file: TenantPolicies) -> None:
        self._path = path
        self._current = without_file
        self._body: bytes | None = None  # of the newest document, valid or not
        self._body_fault: str | None = None
        self._fault: str | None = None

    @classmethod
    async def open(cls, path: Path | None, without_file: TenantPolicies) -> "PolicyKeeper":
        """Return a keeper with the policies of the file. Raise `InvalidInput` if it is invalid."""
        keeper = cls(path, without_file)
        await keeper.reload()
        if keeper.fault is not None:
            raise InvalidInput(keeper.fault, field=SETTING, code="invalid_setting")
        return keeper

    @property
    def current(self) -> TenantPolicies:
        """Return the policies in force. A reload replaces the object."""
        return self._current

    def retry_min_wait(self, tenant: str) -> timedelta | None:
        """Return the minimum time between two attempts of a run of the tenant."""
        return self._current.of(tenant).quotas.retry_min_wait

    @property
    def has_file(self) -> bool:
        """Return whether an operator has written a document."""
        return self._path is not None

    @property
    def fault(self) -> str | None:
        """Return the fault of the newest document, or None if its policies are in force."""
        return self._fault

    async def run(self) -> None:
        """Read the file at each interval until the task is cancelled."""
        while self._path is not None:
            await asyncio.sleep(RELOAD_INTERVAL)
            await self.reload()

    async def reload(self) -> None:
        """Read the file. An invalid document leaves the policies and sets the fault."""
        if self._path is None:
            metrics.TENANT_POLICIES_VALID.set(1)  # nothing is older than the policies in force
            return
        try:
            # In a thread, because a large document takes longer than a start may be late.
            fault = await asyncio.to_thread(self._read, self._path)
        except OSError as error:
            fault = f"the file cannot be read: {error.strerror}."
        if fault is not None:
            fault = f"The file {self._path} must contain valid tenant policies, but {fault}"
        if fault is not None and fault != self._fault:
            log.error("tenant policies rejected", reason=fault)
        self._fault = fault
        metrics.TENANT_POLICIES_VALID.set(fault is None)

    def _read(self, path: Path) -> str | None:
        """Return the fault of the document in the file."""
        with path.open("rb") as file:
            body = file.read(MAX_FILE_SIZE + 1)
        if body != self._body:
            self._body, self._body_fault = body, self._parse(body)
        return self._body_fault

    def _parse(self, body: bytes) -> str | None:
        try:
            policies = parse_policies(body)
        except InvalidInput as error:
            return error.reason
        self._current = policies
        log.info("tenant policies loaded", tenants=len(policies.tenants))
        return None
