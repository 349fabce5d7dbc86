"""What every process says of itself: its build, its log lines and their levels."""
