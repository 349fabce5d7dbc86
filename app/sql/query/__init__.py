"""Queries: the sandboxed processes in which DuckDB runs them."""
