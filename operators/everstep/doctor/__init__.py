"""Turns symptoms (events, states of objects, what the replicator wrote) into causes and remedies."""
