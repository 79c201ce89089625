"""The path of a query through intake: parsed, read from PostgreSQL, and answered as typed views.

* handler              one delivery in, its response out
* parse                a message in, a checked query of the contract out (pure)
* store                the SQL of the queries
* views                views of rows (pure)
* schedule_history     a schedule and its versions, from their rows (pure)
* why                  the preview and the explanation of scheduled times (pure)
"""
