"""Getting on after an end: the gate that says whether a run is really complete."""
