"""The SQL protocol of Trino's clients."""
