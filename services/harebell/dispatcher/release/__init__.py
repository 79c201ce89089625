"""The release of tickets: when a ticket leaves the dispatcher, and where it goes.

* queue            the release queue: tickets until their lead
* gates            rules that may defer a due ticket, rates among them
* forwarder        the publisher of ticket batches, and the deliveries that wait for it
"""
