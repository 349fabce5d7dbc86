"""The partition map exchange: its decisions in ``core``, and the simulation that runs them."""
