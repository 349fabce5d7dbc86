"""System views: their columns, their rows, and who sees which."""
