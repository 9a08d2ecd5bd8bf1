"""Links from a task to what it looks after: the JobSet and the run's folder in the Google Cloud console.

A task that looks after a run calls :func:`store_links` before it waits, so that the links are there while it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.providers.common.compat.sdk import BaseOperator, Context

    from everstep.spec.cluster import ClusterSpec

LINKS_KEY = "everstep_links"
CONSOLE = "https://console.cloud.google.com"


class JobSetLink(BaseOperatorLink):
    """The run's JobSet among the workloads of its cluster."""

    name: ClassVar[str] = "JobSet"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Its address, or an empty string (no link is shown) while the task has stored none."""
        return _stored_links(ti_key).get("jobset", "")


class CheckpointsLink(BaseOperatorLink):
    """The run's folder of backups in the bucket."""

    name: ClassVar[str] = "Checkpoints"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Its address, or an empty string (no link is shown) while the task has stored none."""
        return _stored_links(ti_key).get("checkpoints", "")


def store_links(context: Context, cluster: ClusterSpec, *, run: str, bucket: str) -> None:
    """Keeps the addresses of a run's JobSet (named like the run) and folder for the links above."""
    place = f"{cluster.location}/{cluster.name}/{cluster.namespace}"
    object_path = quote(f"/kubernetes/object/jobset.x-k8s.io/jobsets/{place}/{run}/details")
    project = quote(cluster.project)
    links = {
        "jobset": f"{CONSOLE}{object_path}?project={project}",
        "checkpoints": f"{CONSOLE}/storage/browser/{quote(bucket)}/{quote(run)}?project={project}",
    }
    context["ti"].xcom_push(key=LINKS_KEY, value=links)


def _stored_links(ti_key: TaskInstanceKey) -> Mapping[str, str]:
    from airflow.providers.common.compat.sdk import XCom

    links: Any = XCom.get_value(key=LINKS_KEY, ti_key=ti_key)
    return links if isinstance(links, dict) else {}
