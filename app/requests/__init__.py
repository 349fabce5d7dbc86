"""The request that is being served: its sender, its id, its errors and its audit."""
