"""The local stack: a private RabbitMQ, a private PostgreSQL and the services, all on loopback.

* stack                the whole stack: start, stop and status
* servers              RabbitMQ and PostgreSQL together
* rabbitmq             a private RabbitMQ node
* postgres             a private PostgreSQL cluster
* os_user              the system account of PostgreSQL when the caller is root
* ports                free loopback ports
* supervisor           the process that keeps the services running
* plan                 the services to run, with their settings
* processes            the service processes of one stack
* local_services       single services, for tests
* pid_file             one background process
* spawn                processes and signals
* state                the files of the stack
* status               the output of `harebell dev status`
* logs                 log files
* errors               the errors of the stack
* compose_credentials  the passwords of the stack of compose/compose.yaml
* demo                 `make demo`
"""
