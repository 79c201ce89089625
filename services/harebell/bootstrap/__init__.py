"""The start and the stop of a service.

* process              `__main__` of every service: settings, logs, signals, the event loop
* service_context      the collaborators of every service, opened in order
* links                faults of certificates and weak links
* supervisor           reports to systemd: started, stopping, alive
* parts                the consumers and the loops of a service, which run until its stop
* health               `/livez`, `/readyz` and `/metrics`
"""
