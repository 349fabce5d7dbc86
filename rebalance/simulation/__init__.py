"""The control plane in one process and in virtual time: real controllers, real agents, simulated everything else.

Reproducible from a seed. What is simulated in which form: ``rebalance/tech-notes/simulator.md``.
"""
