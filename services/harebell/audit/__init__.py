"""Compares what was owed with what was recorded, from the tables alone."""
