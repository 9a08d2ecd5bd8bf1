"""Run files and cluster files: models, checks, names. Pure: knows neither Airflow nor a cloud client."""

from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import Finding, FindingsError, Severity
from everstep.spec.training import TrainingSpec

__all__ = ["ClusterSpec", "Finding", "FindingsError", "Severity", "TrainingSpec"]
