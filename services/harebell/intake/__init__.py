"""Consumes commands and queries: the only door. Publishes changes, answers; writes nothing."""
