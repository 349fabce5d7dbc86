"""Files that Prometheus and Grafana read; ``python -m monitoring`` makes them from tables of alerts and
panels."""
