"""What the services share: the rules that more than one needs, and the plumbing. No service."""
