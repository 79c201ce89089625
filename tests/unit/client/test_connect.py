"""A connection that fails leaves nothing behind."""

import asyncio
import gc
import logging
import warnings
from contextlib import suppress

import pytest

from harebell.client.connection import connect
from harebell.contract.errors import BrokerUnavailable
from harebell.dev.ports import LOOPBACK


async def test_one_that_fails_is_closed_before_it_is_collected_in_whatever_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "aiormq")  # a record would keep it from being collected
    nowhere = f"amqp://guest:guest@{LOOPBACK}:1/"

    gc.disable()
    try:
        with suppress(BrokerUnavailable):
            await connect(nowhere, name="test", properties={})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            await asyncio.to_thread(gc.collect)
    finally:
        gc.enable()

    assert not [str(each.message) for each in warned]
