"""The framework turns a function and its options into a command.

* command       the decorator that derives the options of a command from a dataclass
* options       the global options, and the options that several commands share
* session       the options, the clock and the connection of one command
* output        tables and JSON on stdout, messages on stderr
* exit_codes    the exit codes of every command
"""
