"""A small byte-level language model, trained on the source text of the running Python's standard library."""
