"""Voldemort's rebalancing: its decisions in ``core``, and the simulation that runs them."""
