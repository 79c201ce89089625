"""The path of a query through intake: parsed, read from PostgreSQL, and answered as typed views.

* handler              one delivery in, its response out
* parse                a message in, a checked query of the contract out (pure)
* store                the SQL of the queries
* views                views of rows (pure)
* calendars            calendars, and the calendars of a definition
* usage                the quotas of tenants, their use and what was refused
* forecast             the number of runs of each hour and group (pure)
* forecast_store       the SQL of the forecast
* label_holders        the runs that have the slots of a concurrency label
* schedule_history     a schedule and its versions, from their rows (pure)
* why                  the preview and the explanation of scheduled times (pure)
"""
