"""The contract: every message of Harebell, as a checked model. The package does no I/O.

* schedule            the definition of a schedule
* when                its scheduled times
* target              its call
* secret              references to secrets
* redaction           literal secrets and their redaction
* policy              its policies
* command_base        the fields of every command
* commands            the commands
* queries             the queries
* responses           the responses of commands, and the response type of each query
* views               the typed rows in the responses of queries
* accepted_commands   the message from intake to the service that applies commands
* ticket              the message that carries one run to an executor
* control             stop requests for executors
* events              the events
* breakers            commands, events and snapshots of circuit breakers
* dead_letter         dead letters, their exports and their filters
* downstream          names of the systems that targets call
* ids                 derived ids
* amqp_names          exchanges, routing keys, headers and lanes
* errors              the tree of errors
* message             the bases of every message
* types               instants, durations, names and JSON
* json_codec          conversion to bytes and back
* _version            the version of the distribution
"""

from harebell.contract._version import __version__

__all__ = ["__version__"]
