"""``zonectl up``: an installation on one machine, its child processes and its data directory."""
