"""The Grafana dashboards in `compose/grafana`, generated from typed panels."""
