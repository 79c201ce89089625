"""The commands that write the Grafana dashboards and show their data.

* `python -m tests.tools.dashboards` writes the dashboards again.
* `python -m tests.tools.dashboards URL` prints each panel as a table of its data.
"""

import sys
from typing import Final

from tests.acceptance.prometheus import Prometheus
from tests.tools.dashboards.grafana import write
from tests.tools.dashboards.tables import current, page

USAGE: Final = "Usage: python -m tests.tools.dashboards [URL of Prometheus]"


def main(arguments: list[str]) -> None:
    """Write the dashboards, or print their tables."""
    match arguments:
        case []:
            write()
        case [url] if url.startswith(("http://", "https://")):
            try:
                sys.stdout.write(page(current(Prometheus(url.rstrip("/")).query)))
            except OSError as error:
                sys.exit(f"Prometheus at {url} did not answer: {error}")
        case _:
            sys.exit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
