"""The framework turns a function and its options into a command.

* lazy_commands    commands that are imported when a user names them
* options          the global options, and the options that several commands share
* process          the facilities of the process
* command          the decorator that derives the options of a command from a dataclass
* session          the options, the clock and the connection of one command
* output           tables and JSON on stdout, messages on stderr
* exit_codes       the exit codes of every command
"""
