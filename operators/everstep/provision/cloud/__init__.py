"""What Google Cloud holds of a cluster file: APIs, the cluster, node pools, buckets and who may use them."""
