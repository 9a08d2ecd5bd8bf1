"""Cloud Storage on one machine: the JSON API of buckets, objects, folders and uploads, kept as plain files.

It stands in for a bucket wherever the product looks: preconditions are enforced everywhere, listings page in
name order, hierarchical folders are renamed atomically by long-running operations, and errors have Google's shape.
Policies are honoured where a sandbox is named (``--sandbox``). What differs from the service: nothing is kept after a
delete (no soft-deleted objects, no noncurrent generations), limits on rates are only met through faults.

Start it with ``python -m everstep_sandbox.storage --directory DIR --port 0 --port-file FILE``.
"""
