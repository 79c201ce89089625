"""The claims of runs, which give the lease of each run to this executor.

* claimer    claims of work batches, and the direct claim
* overlap    the claim with overlap slots
* in_doubt   claims whose result is unknown
"""
