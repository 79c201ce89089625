"""The generator of the reference pages, from the code, and of the lists of pages.

* markdown    tables and code for the pages
* commands    the command line, from the command tree
* settings    the environment variables, from the settings classes
* schedule    the fields of a schedule, from its JSON Schema
* messages    commands, queries and events, from the AsyncAPI document
* states      the states of a run and their diagram, from the transition table
* errors      the error codes, from the calls that make them
* alerts      the alert rules, from the rule file of Prometheus
* indexes     the decision records, and `llms.txt`
* pages       the files
* __main__    the command that writes the files
"""
