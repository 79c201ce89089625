"""`harebell top`: the present load of a tenant, or of all tenants for an operator.

* top       the command: one output, or a screen that is refreshed until Ctrl-C
* load      lanes with their starts, lateness and backlog, from runs (pure)
* queries   the queries of one reading, each with a bound
* screen    the reading as tables of a terminal
"""
