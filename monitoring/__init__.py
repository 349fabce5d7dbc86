"""What Prometheus and Grafana read. ``python -m monitoring`` makes it from the tables of alerts and panels."""
