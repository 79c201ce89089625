"""The local stack: a private RabbitMQ and PostgreSQL, and the services on them, on loopback.

Read in this order: `servers` (both servers), `services` (the service processes), `stack` (all).
"""
