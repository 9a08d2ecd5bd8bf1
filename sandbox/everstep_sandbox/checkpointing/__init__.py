"""Multi-tier checkpointing on one machine: controller, rank server, driver, replicator, coordinator.

Behaves as the public replicator does where a training job or the product can see it: files and markers of the RAM
disk, the choice of the restored step, backups in the bucket, log lines, and its traps. What differs:

- a RAM disk is a plain directory (its size is not limited); peers are reached through the file system, not NFS;
- the bucket is reached through its JSON API instead of a mount, so nothing of it is cached on a node;
- hashes are BLAKE2b-256, not BLAKE3; both give 64 hex digits and nothing compares across the two;
- nodes and coordinator exchange JSON lines over TCP instead of ZeroMQ messages;
- after a restore from a backup each node downloads its own data (the real one broadcasts inside a column).
"""
