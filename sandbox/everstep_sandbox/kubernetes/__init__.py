"""The sandbox's Kubernetes API server: one object store, an HTTP API on it, and the controllers' process.

`store` is the only place where objects change; `server` is HTTP on top of it. Controllers and the scheduler use
the store directly, in the same process and event loop.
"""
