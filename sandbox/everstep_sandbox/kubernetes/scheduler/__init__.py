"""The scheduler: one pod at a time by priority, with filters, preemption and no gang scheduling, as in reality."""
