"""Logged statements, which outlive the server that began them."""
