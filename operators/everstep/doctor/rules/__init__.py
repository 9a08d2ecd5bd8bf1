"""One module per family of symptoms: which there are, and the functions that find them. Pure."""
