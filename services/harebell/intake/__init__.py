"""Intake receives, checks and answers the commands and queries of users.

Intake writes no table: other services apply the commands, and PostgreSQL answers the queries.

* service      wiring of the consumers
* commands     checks of commands, and the messages that intake publishes
* delayed      delayed messages, which become commands
* queries      responses to queries
"""
