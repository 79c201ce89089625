"""The last lines of logs, and lines that processes append later."""

from pathlib import Path

from harebell.dev.logs import LogFollower, rotate, tail


def append(log: Path, text: str) -> None:
    with log.open("a") as written:
        written.write(text)


def test_tail_returns_the_last_lines_or_nothing(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    missing = tail(log, 2)
    log.write_text("a\nb\nc\n")

    assert missing == ""
    assert tail(log, 2) == "b\nc"


def test_follower_yields_complete_new_lines(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("old\n")
    follower = LogFollower([log])

    append(log, "new\nhal")
    first = list(follower.new_lines())
    append(log, "f\n")
    second = list(follower.new_lines())

    assert first == [("one", "new")]
    assert second == [("one", "half")]


def test_follower_starts_again_after_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text("a long old line\n")
    follower = LogFollower([log])

    log.unlink()
    gone = list(follower.new_lines())
    log.write_text("fresh\n")

    assert gone == []
    assert list(follower.new_lines()) == [("one", "fresh")]


def test_rotate_keeps_one_old_log(tmp_path: Path) -> None:
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
