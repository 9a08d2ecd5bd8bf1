"""The HTTP API over the store: paths and queries in, JSON objects, tables and event streams out."""
