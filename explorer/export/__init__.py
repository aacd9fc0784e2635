"""A design as a file of torch that needs nothing else: source text from a `Config`, made without torch."""
