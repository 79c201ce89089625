"""The claims of runs, which give the lease of each run to this executor.

* unclaimed_tickets  received work batches, and the order of their claims
* claimer            claims within the capacity of a lane, and claims whose result is unknown
* overlap            the claim with overlap slots and label slots
* labels             the decisions about runs with a concurrency label
"""
