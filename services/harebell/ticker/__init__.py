"""Consumes checked changes, owns schedules, stages what is due, sweeps up what got lost."""
