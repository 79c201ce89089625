"""Bundles: what is rubbish is refused for its first fault, before anyone has to wait for it."""

import pytest
from pydantic import ValidationError

from harebell.contract.ticket import TICKET_BATCH

ITEMS = 250_000  # a megabyte; an executor that reads it for seconds lets its leases lapse


def test_of_a_megabyte_of_rubbish_one_fault_is_told() -> None:
    with pytest.raises(ValidationError) as refused:
        TICKET_BATCH.validate_json(b"[" + b'"x",' * ITEMS + b'"x"]')

    assert refused.value.error_count() == 1
