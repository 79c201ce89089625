"""Bodies that are JSON, and the reasons for those that are not."""

import gzip
import zlib

import pytest

from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b" \r\n\t"])
def test_json_may_begin_with_a_byte_order_mark(mark: bytes) -> None:
    assert decode(mark + b'{"a": 12345678901234567890}') == {"a": 12345678901234567890}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(b"{}", mtime=0), "it is compressed with gzip."),
        (zlib.compress(b"{}"), "it is compressed with zlib."),
        (b"\x28\xb5\x2f\xfd\x00\x01", "it is compressed with Zstandard."),
        ('{"a": 1}'.encode("utf-16"), "it is in UTF-16."),
        ("[1]".encode("utf-16-be"), "it is in UTF-16."),
        (b'{"a": "\xe9"}', "The text must be UTF-8, but byte 7 is 0xe9."),
        (b"", "The text must be JSON, but it is empty."),
        (b"\xef\xbb\xbf", "The text must be JSON, but it is empty."),
        (b"key: a\n", "The text is not JSON: "),
        (b'{"a": 1,}', "trailing comma"),
    ],
)
def test_reason_tells_the_form_of_other_bytes(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput) as failed:
        decode(body)

    assert failed.value.code == "not_json"
    assert reason in failed.value.reason
    assert "surrogates" not in failed.value.reason
