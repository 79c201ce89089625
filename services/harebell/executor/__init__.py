"""Consumes work, claims it in the ledger, starts it on its instant, records what came of it."""
