"""The blocks of a page, and the shell that runs them."""

from pathlib import Path

import pytest
from tests.tools.page_commands import Block, PageShell, blocks_of

TEXT = """# Page

```sh
# a comment of the shell
echo one
```

## List

1. Step

   ```sh
   echo two
   ```

```console
$ echo three
three
$ echo four
```

```sql
SELECT 1;
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(TEXT)
    return path


@pytest.fixture
def shell(tmp_path: Path) -> PageShell:
    return PageShell(folder=tmp_path, variables={"GREETING": "hello"})


def test_blocks_have_their_section_and_neither_prompt_nor_output(page: Path) -> None:
    assert list(blocks_of(page)) == [
        Block("Page", "sh", "# a comment of the shell\necho one"),
        Block("List", "sh", "echo two"),
        Block("List", "console", "echo three\necho four"),
    ]
    assert [each.text for each in blocks_of(page, "sql")] == ["SELECT 1;"]


def test_example_that_the_page_no_longer_contains_is_named() -> None:
    block = Block("Page", "sh", "echo one")

    assert block.replaced({"one": "two"}) == "echo two"
    with pytest.raises(AssertionError, match="three"):
        block.replaced({"three": "four"})


def test_script_that_fails_fails_the_test_with_its_output(shell: PageShell) -> None:
    assert shell.run('echo "$GREETING"') == "hello\n"
    with pytest.raises(AssertionError, match="a reason"):
        shell.run("echo a reason; false; echo not reached")


def test_programs_of_the_shell_come_before_those_of_the_path(tmp_path: Path) -> None:
    program = tmp_path / "own-program"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    shell = PageShell(folder=tmp_path, variables={"PATH": "/usr/bin:/bin"}, programs=[tmp_path])

    assert shell.run("own-program | cat") == "found\n"


def test_failure_in_a_pipeline_fails_the_script(shell: PageShell) -> None:
    with pytest.raises(AssertionError):
        shell.run("false | cat")


def test_script_without_an_end_runs_until_the_condition_holds(shell: PageShell) -> None:
    file = shell.folder / "written"

    output = shell.run_until("echo begun; touch written; sleep 1000", file.exists)

    assert output == "begun\n"


def test_script_that_ends_before_the_condition_holds_fails(shell: PageShell) -> None:
    with pytest.raises(AssertionError, match="too early"):
        shell.run_until("echo too early", lambda: False)
