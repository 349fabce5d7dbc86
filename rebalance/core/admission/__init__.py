"""Admission: which moves may begin, under which limits."""
