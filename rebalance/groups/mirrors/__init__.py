"""Learners: mirrors of a group."""
