"""The transactions that change the ledger and publish: the tickets leave before the commit.

* publishing_transaction   a transaction whose messages are confirmed before its commit
* run_completion           the end of an attempt, with the messages about the next step
* woken_runs               runs that wait for a slot of their schedule or label
* delayed_runs             runs that must start later
"""
