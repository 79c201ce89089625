"""The rules of the desk: what becomes a letter, what a person sees of it, what may be replayed."""
