"""System views: their columns, their rows, and the rules for who sees them."""
