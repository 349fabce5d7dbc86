"""The control plane in one process and in virtual time: real controllers and agents, the rest is simulated.

Reproducible from a seed. What is simulated in which form: ``simulator/tech-notes/simulator.md``.
"""
