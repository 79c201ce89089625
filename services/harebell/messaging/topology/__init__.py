"""The topology of Harebell on RabbitMQ, as pure values.

* declarations         the types of exchanges, queues, bindings and topologies
* delay_queues         the delay queues and the route of a waiting ticket
* bus                  every exchange, queue and binding
* permissions          the RabbitMQ users and their permissions
* definitions_file     the definitions file that RabbitMQ imports
* operator_manifests   the same topology as objects of the operators of Kubernetes
"""
