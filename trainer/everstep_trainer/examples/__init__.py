"""Training programs that use the library, small enough to run anywhere."""
