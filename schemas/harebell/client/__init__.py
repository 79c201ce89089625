"""The light client: publish schedule events, ask what became of them. No database."""
