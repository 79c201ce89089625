"""RabbitMQ, for services: declare the topology, consume with the only acknowledgements, publish."""
