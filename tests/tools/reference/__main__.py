"""The command `python -m tests.tools.reference`, which writes the pages into `docs/reference`."""

from tests.tools.reference.pages import write

if __name__ == "__main__":
    write()
