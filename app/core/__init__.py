"""Pure decisions of the servers: alerts and levels of log lines."""
