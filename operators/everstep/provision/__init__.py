"""What must stand before a run starts: priority classes, and a preflight that says everything that is amiss."""
