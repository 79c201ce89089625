"""Connections to RabbitMQ, and what the links to RabbitMQ and PostgreSQL have in common.

The client uses this package, and so do the services. It needs no database.

* amqp           connections, confirms and timeouts
* cancellation   cancellations that an error of a library hides
* tls            faults of certificates and weak links in words
"""
