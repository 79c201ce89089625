"""The command line reads options, sends commands and queries over AMQP, and prints the responses.

* app           the root command `harebell` and the global options
* command_tree  the module and the short help of every command
* framework     the decorator of every command, the session, the output and the exit codes
* arguments     parsed arguments: times, references to schedules, assignments, files
* schedule      `harebell schedule`
* manifests     `harebell apply` and `harebell export`
* imports       `harebell import`: schedules of Celery beat and of crontabs
* why           `harebell why`
* top           `harebell top`
* forecast      `harebell forecast`
* run           `harebell run`
* run_progress  the progress of `harebell run watch`
* dlq           `harebell dlq`
* breaker       `harebell breaker`
* calendar      `harebell calendar`
* tenants       `harebell tenants`
* topology      `harebell topology`
* webhook       `harebell webhook`
* audit         `harebell audit`, which needs the database
* doctor        `harebell doctor`: what is wrong with an installation, and how to mend it
* archive       `harebell archive`, which needs the directory of the archive only
* dev           `harebell dev`, the local stack
"""
