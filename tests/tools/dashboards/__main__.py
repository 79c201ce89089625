"""The command `python -m tests.tools.dashboards` writes the Grafana dashboards again."""

from tests.tools.dashboards.grafana import write

if __name__ == "__main__":
    write()
