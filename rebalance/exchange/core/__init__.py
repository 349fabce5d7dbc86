"""Decisions of a node of the exchange: messages in, effects out."""
