"""Voldemort's rebalancing on simulated servers: a controller, stealers that redirect to donors, and clients.

Everything runs in virtual time (``simulator.control.virtual_time``); the decisions are those of
``simulator.stealing.core``.
"""
