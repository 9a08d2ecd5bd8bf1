"""Names, layout, catalogue and completeness of a run's checkpoints.

Everything here is pure: it imports the standard library only, does no I/O, reads no clock, and so gives the
same answer in a training pod, in an Airflow worker and in a test. Whoever lists a bucket or a directory
passes in what was found.
"""
