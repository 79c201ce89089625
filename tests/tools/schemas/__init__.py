"""The contract as others read it: JSON Schemas and an AsyncAPI document, made from the code.

Read in this order: `messages` (what there is), `jsonschema` (one schema for each), `channels` and
`operations` (its way on the bus), `asyncapi` (the whole), `documents` (the files).
"""
