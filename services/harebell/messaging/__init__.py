"""Messaging with RabbitMQ: the topology, confirmed publishing and acknowledged consuming.

* topology             the exchanges, queues, bindings and permissions, as values
* pamqp_patch          a patch that keeps received properties as bytes
* received_properties  the decoding of properties and headers when a service reads them
* declare              the declaration of the topology and its comparison with a broker
* topology_keeper      repeated declarations while a service runs
* publisher            confirmed publishing of messages
* ticket_batches       ticket headers and the rules for tickets in one message
* ticket_messages      messages that carry tickets to delay queues and work queues
* consumer             consumers that reconnect, and their workers
* deficit_round_robin  the order of items that wait in several flows
* fair_worker          a worker that serves several queues in turn
* received_message     the received properties of a message, and the tags of a channel
* acknowledge          retries of handlers, and the only acknowledgements
* isolation            the answer and the dead letter of a message whose handler fails
* accepted_messages    the messages of accepted commands, the replies and the credits for them
* exclusive_consumer   consumers of queues that belong to one instance
* foreign_messages     messages between services that no service has published
* sender_check         the check of the sender, the route and the reply queue of a message
* replies              responses to the senders of commands and queries
* dead_letters         messages that no service can process
* run_events           events, stop requests and dead letters of runs
* run_log              log lines of the transitions of runs
* event_publisher      publishing and counting of events, those of rejections within a budget
* metrics              counters of ended runs, attempts and refused messages
"""
