"""Description that every process gives of itself: its build, its log lines and their levels."""
