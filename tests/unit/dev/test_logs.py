"""The ends of logs, and what is written to them later."""

from pathlib import Path

from harebell.dev.logs import Follower, rotate, tail


def append(log: Path, text: str) -> None:
    with log.open("a") as written:
        written.write(text)


def test_the_tail_is_the_last_lines_and_nothing_for_no_log(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    missing = tail(log, 2)
    log.write_text("a\nb\nc\n")

    assert missing == ""
    assert tail(log, 2) == "b\nc"


def test_following_shows_what_is_new_line_by_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("old\n")
    follower = Follower([log])

    append(log, "new\nhal")
    first = list(follower.news())
    append(log, "f\n")
    second = list(follower.news())

    assert first == [("one", "new")]
    assert second == [("one", "half")]


def test_a_log_that_was_put_aside_is_followed_from_its_new_beginning(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("a long old line\n")
    follower = Follower([log])

    log.unlink()
    gone = list(follower.news())
    log.write_text("fresh\n")

    assert gone == []
    assert list(follower.news()) == [("one", "fresh")]


def test_an_overgrown_log_is_put_aside_and_one_old_one_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    for text in ("first", "second"):
        log.write_text(text)
        rotate(log, limit=3)
    log.write_text("a")

    rotate(log, limit=3)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "one.log": "a",
        "one.old": "second",
    }
