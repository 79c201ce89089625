"""The fencing token: an epoch above a sequence number."""

from harebell.domain.run_states import MAX_EPOCH, fencing_token, seq_of

MAX_SEQ = 2**31 - 1  # of the column


def test_token_of_a_later_epoch_is_higher_whatever_the_seq() -> None:
    assert fencing_token(2, 1) > fencing_token(1, MAX_SEQ)


def test_token_of_one_epoch_rises_with_the_seq() -> None:
    assert fencing_token(3, 5) > fencing_token(3, 4)


def test_token_of_an_older_release_is_its_seq() -> None:
    assert fencing_token(None, 5) == 5


def test_token_contains_its_seq_and_every_json_reader_can_store_it() -> None:
    token = fencing_token(MAX_EPOCH, MAX_SEQ)

    assert seq_of(token) == MAX_SEQ
    assert token < 2**53
