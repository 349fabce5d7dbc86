"""Settings: from the environment to value objects."""
