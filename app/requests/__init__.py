"""The request that is being served: who sends it, its id, its errors and its audit."""
