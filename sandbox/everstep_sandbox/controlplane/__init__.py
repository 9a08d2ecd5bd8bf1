"""A real Kubernetes control plane on loopback: etcd, API server, controllers, scheduler and the JobSet controller.

It takes the place of `everstep_sandbox.kubernetes` under the same nodes: `python -m everstep_sandbox.controlplane`.
"""
