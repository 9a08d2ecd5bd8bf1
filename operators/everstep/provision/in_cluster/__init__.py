"""What the cluster itself holds of a cluster file: the JobSet controller, priority classes, checkpoint drivers."""
