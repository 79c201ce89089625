"""The command line reads options, sends commands and queries over AMQP, and prints the responses.

* app           the root command `harebell` and the global options
* command_tree  the module and the short help of every command
* framework     the decorator of every command, the session, the output and the exit codes
* arguments     parsed arguments: times, references to schedules, assignments, files
* schedule      `harebell schedule`
* manifests     `harebell apply` and `harebell export`
* why           `harebell why`
* run           `harebell run`
* dlq           `harebell dlq`
* breaker       `harebell breaker`
* tenants       `harebell tenants`
* topology      `harebell topology`
* webhook       `harebell webhook`
* audit         `harebell audit`, which needs the database
* doctor        `harebell doctor`: links, certificates, the clock and the topology
* dev           `harebell dev`, the local stack
"""
