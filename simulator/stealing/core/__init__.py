"""Plans, checks and state changes of donors and stealers."""
