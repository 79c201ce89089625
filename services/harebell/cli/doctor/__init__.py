"""`harebell doctor`: what is wrong with an installation, and how to mend it.

* doctor      the command, which runs the groups of checks at the same time
* checks      one check: its verdict, its sentence, its remedy and its time limit
* links       the links to both servers, their certificates, the clock and the topology
* management  the management API of RabbitMQ
* broker      the verdicts about the broker, from the answers of that API (pure)
* database    the verdicts about the database, from what the audit reads (pure)
"""
