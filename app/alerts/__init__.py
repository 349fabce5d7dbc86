"""Alerts: one table of conditions, judged by every server, shown, and sent by one of them."""
