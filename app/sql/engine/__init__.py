"""The SQL engine: where each kind of statement is carried out."""
