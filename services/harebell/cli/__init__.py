"""The `harebell` command: schedules, runs, dead letters, the local stack; over AMQP alone."""
