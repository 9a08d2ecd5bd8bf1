"""Which old backups may go: the policy (pure), the plan, and the operator that makes one."""
