"""The generator of the JSON Schemas and of the AsyncAPI document, from the code.

* messages     every message, with its exchange and its responses
* jsonschema   one JSON Schema for each message
* channels     the exchanges with their queues and messages
* operations   the requests of users and the steps between services
* asyncapi     the AsyncAPI document
* documents    the files
* __main__     the command that writes the files
"""
