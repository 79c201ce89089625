"""The bytecode of modules: the processes of tests write it once and read it afterwards."""

import subprocess
import sys
from pathlib import Path

MODULE = "import sys; import measured; print(sys.dont_write_bytecode)"


def test_process_of_a_test_writes_the_bytecode_of_its_modules(tmp_path: Path) -> None:
    (tmp_path / "measured.py").write_text("VALUE = 1\n")

    done = subprocess.run(  # noqa: S603  # the interpreter of this test
        [sys.executable, "-c", MODULE], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False"]
    assert [path.name.split(".")[0] for path in tmp_path.rglob("*.pyc")] == ["measured"]
