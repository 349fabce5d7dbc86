"""Plans: what a change of the catalog would do and move."""
