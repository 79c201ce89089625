"""The audit compares the runs that schedules required with the runs in the ledger.

The audit reads only the tables and needs neither a service nor a broker.

* audit            one audit: batches of schedules, and their runs in time slices
* store            the read-only connection and the statements
* database_reader  the read-only connection and the statements of `harebell doctor`
* waits            the statements about breakers and overlap slots, for which runs wait
* rates            the statement about the runs of tenants with a quota `runs_per_second`
* model            the rules (pure)
* liveness         missed heartbeats of tickers and pools
* gauges           the result of an audit as gauges
* watchdog         repeated audits with pings and events
"""
