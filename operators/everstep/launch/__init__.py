"""From a training spec to one JobSet: manifest, lease, record of the run, and the operator that launches."""
