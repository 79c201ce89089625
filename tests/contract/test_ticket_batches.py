"""The parsing of a ticket batch ends at its first invalid item."""

import pytest
from pydantic import ValidationError

from harebell.contract.ticket import TICKET_BATCH

ITEMS = 250_000  # a megabyte, whose complete check would take seconds and expire leases


def test_invalid_batch_of_a_megabyte_has_one_error() -> None:
    with pytest.raises(ValidationError) as rejected:
        TICKET_BATCH.validate_json(b"[" + b'"x",' * ITEMS + b'"x"]')

    assert rejected.value.error_count() == 1
