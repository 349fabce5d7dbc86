"""What is wrong with an installation: checks that decide, and probes that look without changing anything."""
