"""The supply chain: a lock with hashes, equal installations and a bill of materials."""

import json
import os
import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from tests.tools.bill_of_materials import ROOT, SERVICES, install_from_lock, write_bill

DEVELOPMENT = ROOT / "requirements" / "development.txt"
BUILD = ROOT / "requirements" / "build.txt"
UV = Path(sys.executable).with_name("uv")
PUBLIC_HOSTS = {"files.pythonhosted.org", "pypi.org"}
HASH = re.compile(r"sha256:[0-9a-f]{64}")
PATH_OF_ENVIRONMENT = b"<environment>"


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run uv without a network and without the index of this machine."""
    command = [str(UV), "--quiet", "--no-config", "--offline", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    return subprocess.run(  # noqa: S603  # a fixed command
        command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )


@pytest.mark.requirement("P14")
def test_lock_matches_the_ranges_of_the_project() -> None:
    result = uv("lock", "--check")

    assert result.returncode == 0, f"Run `make lock`.\n{result.stderr}"


@pytest.mark.requirement("P14")
@pytest.mark.parametrize(
    ("path", "extras"),
    [
        (SERVICES, ["--no-dev"]),
        (DEVELOPMENT, ["--extra", "dev", "--group", "docs"]),
        (BUILD, ["--only-group", "build"]),
    ],
)
def test_requirements_are_the_export_of_the_lock(path: Path, extras: list[str]) -> None:
    export = ["export", "--frozen", "--format", "requirements.txt", "--no-emit-project"]

    result = uv(*export, "--no-header", *extras)

    assert result.stdout == path.read_text(), "Run `make lock`."


@pytest.mark.requirement("P14")
def test_lock_has_a_hash_for_each_file() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    packages = [each for each in lock["package"] if each["name"] != "harebell"]

    assert len(packages) > 30
    for package in packages:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        assert files, package["name"]
        assert all(HASH.fullmatch(each["hash"]) for each in files), package["name"]


@pytest.mark.requirement("P14")
@pytest.mark.parametrize("path", [ROOT / "uv.lock", SERVICES, DEVELOPMENT])
def test_lock_names_no_host_except_the_public_index(path: Path) -> None:
    hosts = set(re.findall(r"\w+://([^/\s\"']+)", path.read_text()))

    assert hosts <= PUBLIC_HOSTS


@pytest.mark.requirement("P14")
@pytest.mark.long
def test_two_installations_have_the_same_files_and_the_bill_lists_their_packages(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "first" / "environment", tmp_path / "second" / "environment"]
    first, second = map(install_from_lock, folders)
    write_bill(first, tmp_path / "first.cdx.json")
    write_bill(second, tmp_path / "second.cdx.json")

    files = installed_files(folders[0])
    assert len(files) > 1000
    assert files == installed_files(folders[1])
    assert (tmp_path / "first.cdx.json").read_bytes() == (tmp_path / "second.cdx.json").read_bytes()
    assert listed(tmp_path / "first.cdx.json") == installed(first)


def installed_files(environment: Path) -> dict[str, str]:
    """Return the hash of each file, in which the path of the environment is replaced.

    The scripts contain this path, and a `RECORD` contains the hashes of the scripts.
    Python writes the byte code again.
    """
    return {
        str(path.relative_to(environment)): sha256(
            path.read_bytes().replace(bytes(environment), PATH_OF_ENVIRONMENT)
        ).hexdigest()
        for path in environment.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "RECORD"
        # pip writes the path of the wheel, which a temporary folder contained
        if path.name != "direct_url.json"
    }


def listed(bill: Path) -> set[tuple[str, str]]:
    document = json.loads(bill.read_text())
    components = [*document["components"], document["metadata"]["component"]]
    return {(normal(each["name"]), each["version"]) for each in components}


def installed(python: Path) -> set[tuple[str, str]]:
    script = (
        "import importlib.metadata as m, json;"
        "print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    )
    output = subprocess.check_output(  # noqa: S603  # a fixed command
        [str(python), "-I", "-c", script], text=True
    )
    return {(normal(name), version) for name, version in json.loads(output)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
