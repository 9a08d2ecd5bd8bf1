"""The JobSet controller (v1alpha2, as of release 0.11): child Jobs, failure and success policy, suspend, placement."""
