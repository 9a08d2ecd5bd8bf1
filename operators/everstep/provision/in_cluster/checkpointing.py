"""The CheckpointConfigurations of a cluster file, as a step: made, left alone when equal, made anew only on demand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from everstep.clients.kubernetes import Object
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINT_DEFINITION,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NODES,
    PODS,
)
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.cloud import bodies, gcloud
from everstep.provision.in_cluster import configuration, drivers, texts, users
from everstep.provision.in_cluster.reading import Reader
from everstep.spec.findings import Finding, error, note, warning

if TYPE_CHECKING:
    from everstep.provision.site import Site
    from everstep.spec.cluster import CheckpointConfigurationSpec

DRIVER_SECONDS = 900.0
GONE_SECONDS = 900.0
KIND_SECONDS = 600.0
WIPES = "wipes the RAM disks of its nodes: whatever has no backup or durable save is lost"


class CheckpointConfigurations:
    """Every CheckpointConfiguration of the cluster file, with its driver ready on each node.

    :param recreate: one that differs is deleted and made anew
    :param force: also while a JobSet uses its driver
    :param marks: annotations of configurations that are made
    :param seconds: how long a driver may take to become ready everywhere
    """

    title = "checkpoint configurations"

    def __init__(
        self,
        site: Site,
        *,
        recreate: bool = False,
        force: bool = False,
        marks: Mapping[str, str] | None = None,
        seconds: float = DRIVER_SECONDS,
    ) -> None:
        self._spec = site.spec
        self._reader = Reader(site)
        self._recreate = recreate
        self._force = force
        self._marks = marks
        self._seconds = seconds

    def look(self) -> Look:
        """Look at every configuration and its driver."""
        findings: list[Finding] = [*self._reader.absence(), *configuration.size_findings(self._spec)]
        changes: list[Change] = []
        waiting: Waiting | None = None
        there = {each["metadata"]["name"]: each for each in self._reader.list_all(CHECKPOINT_CONFIGURATIONS)}
        if self._reader.exists() and self._reader.find(CUSTOM_RESOURCE_DEFINITIONS, CHECKPOINT_DEFINITION) is None:
            # The add-on brings it moments after it was enabled.
            findings.append(self._kind_lacks())
            waiting = kind_served()
        for name, wanted in self._spec.checkpoint_configurations.items():
            look = self._one(name, wanted, there.get(name))
            findings += look.findings
            changes += look.changes
            waiting = waiting or look.waiting
        findings += self._overlaps(there)
        if any(change.action == "create" for change in changes):
            findings += self._blocking_pods()
        return Look(tuple(findings), tuple(changes), waiting)

    def _one(self, name: str, wanted: CheckpointConfigurationSpec, found: Object | None) -> Look:
        body = configuration.desired(name, wanted, self._spec)
        where = f"CheckpointConfiguration {name}"
        if found is None:
            return Look(self._memory(where, wanted), (self._creation(body),))
        if found["metadata"].get("deletionTimestamp"):
            return Look(waiting=gone(found))
        told = configuration.differences(found.get("spec") or {}, body["spec"], explicit=wanted)
        if told:
            return self._different(where, body, found, told)
        return self._same(where, wanted, found)

    def _same(self, where: str, wanted: CheckpointConfigurationSpec, found: Object) -> Look:
        findings = list(self._memory(where, wanted))
        if not wanted.mount_options and not (found.get("spec") or {}).get("gcsFuseMountOptions"):
            findings.append(
                note(
                    where,
                    "no mount options at all",
                    f"the recommended ones ({', '.join(configuration.MOUNT_OPTIONS[:2])}, …)",
                    "name them as mount_options in the cluster file and recreate the configuration",
                )
            )
        standing = self._standing(found)
        ready = standing is not None and standing.is_ready
        tell = note if ready else warning
        findings.append(tell(where, str(standing) if standing else "its controller has made no driver yet"))
        if standing is not None:
            findings += self._missing_nodes(where, wanted, len(standing.nodes))
        return Look(tuple(findings), waiting=None if ready else self._ready(found))

    def _missing_nodes(self, where: str, wanted: CheckpointConfigurationSpec, there: int) -> list[Finding]:
        """Return a warning when the cluster file's pools have more nodes than are there: on those no driver is ready.

        Flex-start nodes come and go with the pods that ask for them.
        """
        pools = [pool for pool in self._spec.pools.values() if pool.machine_type == wanted.machine_type]
        expected = sum(pool.slices * pool.nodes_per_slice for pool in pools if not pool.flex_start)
        if there >= expected:
            return []
        selector = f"{configuration.INSTANCE_TYPE}={wanted.machine_type}"
        remedy = f"kubectl get nodes -l {selector}; nodes that are parked come back with their node pools"
        return [warning(where, f"{there} nodes of {wanted.machine_type}", f"{expected}, as the pools have", remedy)]

    def _different(self, where: str, body: Object, found: Object, told: list[str]) -> Look:
        differs = "; ".join(told)
        if not self._recreate:
            remedy = (
                "correct the cluster file, or: everstep provision CLUSTER_FILE --mode apply --recreate (" + WIPES + ")"
            )
            expected = "what the cluster file says; a change of a configuration does nothing by itself"
            return Look((error(where, differs, expected, remedy),))
        using = users.live(self._reader, (found.get("spec") or {}).get("nodeSelector") or {})
        refused = [] if self._force else users.refusals(where, using, WIPES)
        name = body["metadata"]["name"]
        change = Change(
            where,
            "recreate",
            differs,
            "as the cluster file says",
            partial(deletion, self._reader, found),
            (
                texts.kubectl("delete", "checkpointconfiguration", name, "--wait=true"),
                texts.kubectl_create(body),
            ),
            texts.terraform(body),
            note=WIPES + (f"; used by {', '.join(map(str, using))}" if using else ""),
        )
        return Look(tuple(refused), (change,))

    def _creation(self, body: Object) -> Change:
        name = body["metadata"]["name"]
        marked = {**body, "metadata": {**body["metadata"], "annotations": dict(self._marks)}} if self._marks else body

        def act() -> Waiting:
            return self._ready(self._reader.client.create(CHECKPOINT_CONFIGURATIONS, marked))

        spec = body["spec"]
        return Change(
            f"CheckpointConfiguration {name}",
            "create",
            "not there",
            f"RAM disk {spec['inMemoryVolumeSize']}, bucket {spec['cloudStorageBucketName']}, "
            f"nodes {spec['nodeSelector'][configuration.INSTANCE_TYPE]}",
            act,
            # The add-on brings the kind moments after it is enabled.
            (
                texts.kubectl("wait", "--for=create", f"--timeout={KIND_SECONDS:.0f}s", f"crd/{CHECKPOINT_DEFINITION}"),
                texts.kubectl_create(marked),
            ),
            texts.terraform(marked),
            note="takes that much RAM of each node",
        )

    def _memory(self, where: str, wanted: CheckpointConfigurationSpec) -> tuple[Finding, ...]:
        selector = f"{configuration.INSTANCE_TYPE}={wanted.machine_type}"
        nodes = self._reader.list_all(NODES, labels=selector)
        return tuple(configuration.memory_findings(where, wanted.ram_bytes, nodes))

    def _standing(self, found: Object) -> drivers.Standing | None:
        if self._reader.find(DAEMON_SETS, drivers.daemon_set_name(found), CHECKPOINTING_NAMESPACE) is None:
            return None
        selector = (found.get("spec") or {}).get("nodeSelector") or {}
        nodes = self._reader.list_all(NODES, labels=",".join(f"{key}={value}" for key, value in selector.items()))
        return drivers.standing(found, nodes, self._reader.list_all(PODS, CHECKPOINTING_NAMESPACE))

    def _overlaps(self, there: Mapping[str, Object]) -> list[Finding]:
        findings = []
        nodes = self._reader.list_all(NODES) if there else []
        for name, wanted in self._spec.checkpoint_configurations.items():
            for other, found in there.items():
                if other in self._spec.checkpoint_configurations:
                    continue
                selector = (found.get("spec") or {}).get("nodeSelector") or {}
                why = configuration.overlap(selector, {configuration.INSTANCE_TYPE: wanted.machine_type}, nodes)
                if why is not None:
                    findings.append(
                        error(
                            f"CheckpointConfiguration {name}",
                            f"overlaps with {other}, which the cluster file does not have: {why}",
                            "one configuration per node, since the second one never gets its driver",
                            f"take it into the cluster file, or: kubectl delete checkpointconfiguration {other}",
                        )
                    )
        return findings

    def _blocking_pods(self) -> list[Finding]:
        return [
            warning(
                f"pod {CHECKPOINTING_NAMESPACE}/{name}",
                "a driver pod without a node",
                "a node: until it has one, no new configuration gets its driver",
                f"kubectl describe pod {name} -n {CHECKPOINTING_NAMESPACE}",
            )
            for name in drivers.unscheduled(self._reader.list_all(PODS, CHECKPOINTING_NAMESPACE))
        ]

    def _ready(self, found: Object) -> Waiting:
        return driver_ready(found, self._seconds)

    def _kind_lacks(self) -> Finding:
        return note(
            "kind CheckpointConfiguration",
            "not served",
            "the add-on HighScaleCheckpointing",
            gcloud.enable_addons(self._spec, bodies.ADDONS),
        )


def deletion(reader: Reader, found: Object) -> Waiting:
    """Delete this very configuration, and return what has to be waited for. Raises Conflict for another one."""
    reader.client.delete(CHECKPOINT_CONFIGURATIONS, found["metadata"]["name"], uid=found["metadata"]["uid"])
    return gone(found)


def gone(found: Object) -> Waiting:
    """Return the wait for the end of a configuration, its DaemonSet and its pods."""
    metadata = found["metadata"]
    what = f"CheckpointConfiguration {metadata['name']}, its driver and its RAM disks to be gone"
    return Waiting("configuration_gone", {"name": metadata["name"], "uid": metadata["uid"]}, what, GONE_SECONDS)


def driver_ready(found: Object, seconds: float = DRIVER_SECONDS) -> Waiting:
    """Return the wait for a configuration's driver on every node."""
    metadata = found["metadata"]
    what = f"the checkpoint driver of CheckpointConfiguration {metadata['name']} to be ready on every node"
    return Waiting("driver_ready", {"name": metadata["name"], "uid": metadata["uid"]}, what, seconds)


def kind_served() -> Waiting:
    """Return the wait for the add-on's kind."""
    what = f"CustomResourceDefinition {CHECKPOINT_DEFINITION}, which the add-on HighScaleCheckpointing brings,"
    return Waiting("kind_served", {"name": CHECKPOINT_DEFINITION}, what, KIND_SECONDS)
