"""Targets: what a run does. An HTTP call, an AMQP message or a Python task, once per attempt."""
