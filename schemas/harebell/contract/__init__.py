"""The contract: every message of Harebell, as a checked model. The package does no I/O.

* schedule            the definition of a schedule
* when                its scheduled times
* target              its call
* target_headers      the headers and the properties of a call
* secret              references to secrets
* redaction           literal secrets and their redaction
* policy              its policies
* calendar            calendars and their commands
* command_base        the fields of every command
* commands            the commands
* queries             the queries
* responses           the responses of commands, and the response type of each query
* views               the typed rows in the responses of queries
* calendar_views      the views of calendars
* accepted_commands   the message from intake to the service that applies commands
* progress            the progress of a running attempt
* ticket              the message that carries one run to an executor
* trace               the trace context of a command
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
