"""Dashboards for Grafana: a table of panels, and the documents that are made from it."""
