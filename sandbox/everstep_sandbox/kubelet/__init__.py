"""The sandbox's kubelet: one process for all nodes that runs each container as a real local process group.

What differs from a real node: images are recorded but not used, mount paths and pod DNS names are rewritten in
environment and arguments instead of being mounted or resolved, signals reach a process that is not PID 1, and there
are no resource limits. Containers do not outlive this process; after its restart they count as lost (exit 137).
"""
