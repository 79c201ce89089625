"""Secret files: names, symlinks, bounds, and rotation within seconds."""

import os
from pathlib import Path

import pytest

from harebell.contract.errors import SecretMissing
from harebell.runtime import secret_files
from harebell.runtime.secret_files import MAX_AGE, MAX_SECRET, SecretFiles
from harebell.runtime.settings import ExecutorSettings


class FakeTime:
    """A monotonic time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(secret_files, "monotonic", fake)
    return fake


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for tenant in ("acme", "umbrella"):
        (tmp_path / "secrets" / tenant).mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"outside")
    (tmp_path / "secrets" / "acme" / "token").write_bytes(b"first\n")
    (tmp_path / "secrets" / "umbrella" / "token").write_bytes(b"of umbrella")
    return tmp_path / "secrets"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"plain", b"plain"),
        (b"unix\n", b"unix"),
        (b"windows\r\n", b"windows"),
        (b"two\n\n", b"two\n"),
        (b" spaces ", b" spaces "),
        (b"\x00\xff", b"\x00\xff"),
    ],
)
def test_value_is_the_content_without_the_newline_at_its_end(
    directory: Path, content: bytes, value: bytes
) -> None:
    (directory / "acme" / "key").write_bytes(content)

    assert SecretFiles(directory).read("acme", "key") == value


def test_each_tenant_reads_its_own_secret(directory: Path) -> None:
    files = SecretFiles(directory)

    assert files.read("acme", "token") == b"first"
    assert files.read("umbrella", "token") == b"of umbrella"


def test_flat_file_contains_the_secret_of_its_tenant(directory: Path) -> None:
    (directory / "acme.flat").write_bytes(b"credential")
    files = SecretFiles(directory)

    assert files.read("acme", "flat") == b"credential"
    with pytest.raises(SecretMissing):
        files.read("umbrella", "flat")


@pytest.mark.parametrize(
    ("tenant", "name"),
    [
        ("acme", "../umbrella/token"),
        ("acme", ".."),
        ("acme", "."),
        ("acme", ""),
        ("acme", "..data"),
        ("acme", "/etc/passwd"),
        ("acme", "token\n"),
        ("acme", "token\x00"),
        ("acme", "a" * 129),
        ("..", "outside"),
        (".", "acme"),
        ("", "acme"),
        ("acme/../umbrella", "token"),
        ("acme", "other"),
        ("acme", "umbrella"),
        ("nobody", "token"),
    ],
)
def test_other_names_are_missing(directory: Path, tenant: str, name: str) -> None:
    with pytest.raises(SecretMissing) as failed:
        SecretFiles(directory).read(tenant, name)

    assert failed.value.code == "secret_missing"


def test_missing_secret_names_the_secret(directory: Path) -> None:
    with pytest.raises(SecretMissing, match="'other' is missing, because the tenant has no"):
        SecretFiles(directory).read("acme", "other")
    with pytest.raises(SecretMissing, match="no directory is set"):
        SecretFiles(None).read("acme", "token")
    with pytest.raises(SecretMissing, match="the tenant has no such file"):
        SecretFiles(directory / "absent").read("acme", "token")


@pytest.mark.parametrize("target", ["../../outside", "../umbrella/token", "/etc/hostname", "."])
def test_symlink_to_another_place_is_missing(directory: Path, target: str) -> None:
    (directory / "acme" / "link").symlink_to(target)
    (directory / "acme.flatlink").symlink_to(target.removeprefix("../"))
    files = SecretFiles(directory)

    assert files.read("acme", "token") == b"first"
    (directory / "acme" / "loop").symlink_to("loop")
    with pytest.raises(SecretMissing):
        files.read("acme", "loop")
    for name in ("link", "flatlink"):
        with pytest.raises(SecretMissing) as failed:
            files.read("acme", name)
        assert failed.value.code == "secret_missing"


def test_tenant_directory_outside_the_secrets_is_missing(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "token").write_bytes(b"foreign")
    (directory / "linked").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SecretMissing):
        SecretFiles(directory).read("linked", "token")


@pytest.mark.parametrize("is_whole", [False, True])
def test_volume_of_kubernetes_is_read_and_rotated(
    tmp_path: Path, time: FakeTime, *, is_whole: bool
) -> None:
    """`is_whole`: one volume contains the directories of all tenants."""
    root = tmp_path / "volumes"
    volume = root if is_whole else root / "acme"

    def publish(stamp: str, value: bytes) -> None:
        content = volume / f"..{stamp}" / ("acme" if is_whole else "")
        content.mkdir(parents=True)
        (content / "token").write_bytes(value)
        (volume / "..data_tmp").symlink_to(f"..{stamp}")
        (volume / "..data_tmp").replace(volume / "..data")

    publish("2026_11_23", b"first")
    if is_whole:
        (volume / "acme").symlink_to("..data/acme")
    else:
        (volume / "token").symlink_to("..data/token")
    files = SecretFiles(root)
    assert files.read("acme", "token") == b"first"
    publish("2026_11_24", b"second")
    time.seconds += MAX_AGE

    assert files.read("acme", "token") == b"second"


def test_rotation_is_seen_after_the_age_of_the_cache(directory: Path, time: FakeTime) -> None:
    files = SecretFiles(directory)
    file = directory / "acme" / "token"
    assert files.read("acme", "token") == b"first"
    file.write_bytes(b"after")

    time.seconds += MAX_AGE - 0.01
    assert files.read("acme", "token") == b"first"
    time.seconds += 0.01
    assert files.read("acme", "token") == b"after"


def test_removed_secret_is_missing_and_then_found_without_a_wait(
    directory: Path, time: FakeTime
) -> None:
    files = SecretFiles(directory)
    file = directory / "acme" / "token"
    files.read("acme", "token")
    file.unlink()
    time.seconds += MAX_AGE

    with pytest.raises(SecretMissing):
        files.read("acme", "token")
    file.write_bytes(b"again")
    assert files.read("acme", "token") == b"again"


def test_unchanged_file_is_opened_once_per_age(
    directory: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real_open = os.open

    def count(path: str, flags: int) -> int:
        opened.append(path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", count)
    files = SecretFiles(directory)
    for _ in range(3):
        for _ in range(100):
            files.read("acme", "token")
        time.seconds += MAX_AGE

    assert len(opened) == 3


def test_full_cache_drops_its_oldest_secret(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "monotonic", lambda: 100.0)
    monkeypatch.setattr(secret_files, "MAX_CACHED", 2)
    files = SecretFiles(directory)
    for name in ("a", "b", "c"):
        (directory / "acme" / name).write_bytes(b"first")
        files.read("acme", name)
    for name in ("a", "b", "c"):
        (directory / "acme" / name).write_bytes(b"second")

    assert [files.read("acme", name) for name in ("c", "b", "a")] == [b"first", b"first", b"second"]


def test_unusable_file_is_invalid_without_its_content(directory: Path) -> None:
    files = SecretFiles(directory)
    (directory / "acme" / "large").write_bytes(b"v" * (MAX_SECRET + 1))
    (directory / "acme" / "largest").write_bytes(b"v" * MAX_SECRET)
    (directory / "acme" / "empty").write_bytes(b"\n")
    (directory / "acme" / "folder").mkdir()
    os.mkfifo(directory / "acme" / "pipe")

    assert len(files.read("acme", "largest")) == MAX_SECRET
    for name in ("large", "empty", "folder", "pipe"):
        with pytest.raises(SecretMissing) as failed:
            files.read("acme", name)
        assert failed.value.code == "secret_invalid"
        assert name in failed.value.reason
        assert "vvv" not in failed.value.reason


def test_setting_names_the_directory(directory: Path) -> None:
    urls = {"HAREBELL_AMQP_URL": "amqp://localhost/", "HAREBELL_DATABASE_URL": "postgresql:///h"}

    settings = ExecutorSettings.load(urls | {"HAREBELL_SECRETS_DIR": str(directory)})

    assert settings.secrets_dir == directory
    assert ExecutorSettings.load(urls).secrets_dir is None
