"""Google Cloud on one machine, beside Cloud Storage: the APIs that provisioning of a GKE cluster needs.

GKE (container v1), Resource Manager v3, Service Usage v1, IAM policies of Cloud KMS keys, custom IAM roles and OAuth
tokens, over REST on one loopback address, for Google's own clients. Long operations take seconds that the sandbox's
speed divides; one runs per cluster at a time; state is on disk, and a server that is killed goes on where it was.
What differs from the services: a caller without a token owns the project, and only what the product looks at is kept.

Start it with ``python -m everstep_sandbox.google --directory DIR --port-file FILE --speed N``.
"""
