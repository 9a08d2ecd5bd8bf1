"""The cluster itself: reachable, add-ons, Workload Identity, what GKE says of its operations. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everstep.clients.resources import CHECKPOINT_DEFINITION
from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.evidence import TRUSTED, Object
from everstep.provision.cloud.endpoints import address, addresses
from everstep.spec.findings import Severity

# A failure that is older says nothing about today.
RECENT_SECONDS = 24 * 3600.0

_STOCKOUT = re.compile(r"stockout|does not have enough resources|ZONE_RESOURCE_POOL_EXHAUSTED", re.IGNORECASE)
_DISABLED = re.compile(r"SERVICE_DISABLED|has not been used in project|API .* is disabled", re.IGNORECASE)
_QUOTA = re.compile(r"quota", re.IGNORECASE)

SYMPTOMS = (
    Symptom("api-disabled", "an API of the project is not enabled"),
    Symptom("cluster-unreachable", "the cluster's API does not answer"),
    Symptom(
        "cluster-elsewhere",
        "another cluster was asked than GKE knows by that name",
        ("jobset-missing", "priority-missing", "priority-differs", "addon-off", "configuration-missing"),
    ),
    Symptom(
        "workload-identity-off",
        "the cluster has no Workload Identity",
        ("addon-off", "driver-token", "driver-denied", "driver-not-ready", "metadata-server-off"),
    ),
    Symptom("metadata-server-off", "a node pool lacks the GKE metadata server", ("driver-token", "driver-not-ready")),
    Symptom(
        "addon-off",
        "the add-on for multi-tier checkpointing is not enabled",
        ("configuration-missing", "volume-not-mounted", "ranks-not-given", "driver-not-ready"),
    ),
    Symptom("fuse-off", "the add-on for Cloud Storage FUSE is not enabled", ("driver-not-ready", "volume-not-mounted")),
    Symptom("cluster-not-running", "GKE says that the cluster is not well"),
    Symptom("cloud-quota", "a quota of the project refused machines", ("slice-missing", "pods-pending")),
    Symptom("cloud-stockout", "Google Cloud had no such machines", ("slice-missing", "pods-pending")),
    Symptom("operation-failed", "an operation of GKE failed"),
)


def disabled(case: Case) -> Iterator[Diagnosis]:
    """Is an API off that was asked?"""
    for kind, api in (
        ("cluster", "container.googleapis.com"),
        ("project", "cloudresourcemanager.googleapis.com"),
        ("buckets", "storage.googleapis.com"),
    ):
        why = case.evidence.unread.get(kind, "")
        if not _DISABLED.search(why):
            continue
        project = case.target.project or "PROJECT"
        yield Diagnosis(
            "api-disabled",
            f"project {project}",
            f"its API {api} is not enabled, so neither the doctor nor provisioning can ask it",
            (quote(why),),
            (f"gcloud services enable {api} --project={project}",),
            severity=Severity.WARNING,
        )


def unreachable(case: Case) -> Iterator[Diagnosis]:
    """Did the API answer at all?"""
    why = case.evidence.unread.get("version")
    if why is None:
        return
    target = case.target
    yield Diagnosis(
        "cluster-unreachable",
        f"cluster {target.cluster}".strip(),
        "its API does not answer, so nothing that lives in it can be judged",
        (quote(why),),
        (
            f"gcloud container clusters get-credentials {target.gcloud_cluster}",
            f"gcloud container clusters describe {target.gcloud_cluster} "
            "--format='yaml(status,endpoint,controlPlaneEndpointsConfig,masterAuthorizedNetworksConfig)'",
        ),
    )


def elsewhere(case: Case) -> Iterator[Diagnosis]:
    """Does the kubeconfig, or the connection, lead to the cluster that GKE describes?"""
    asked, cluster = case.evidence.one("version"), case.evidence.one("cluster")
    if asked is None or cluster is None or not asked.get("server") or cluster.get(TRUSTED):
        return
    known = sorted(set(addresses(cluster)))
    if not known or address(asked["server"]) in known:
        return
    yield Diagnosis(
        "cluster-elsewhere",
        f"cluster {case.target.cluster}",
        f"{asked['server']} was asked, which is none of its addresses: whatever is said of pods, nodes and drivers is "
        "of another cluster",
        (quote(f"GKE reports {', '.join(known)}"),),
        (f"gcloud container clusters get-credentials {case.target.gcloud_cluster}",),
    )


def workload_identity(case: Case) -> Iterator[Diagnosis]:
    """Can pods get tokens of their own? Without that the driver never reaches the bucket."""
    cluster = case.evidence.one("cluster")
    if cluster is None:
        return
    target = case.target
    pool = (cluster.get("workloadIdentityConfig") or {}).get("workloadPool")
    if not pool:
        yield Diagnosis(
            "workload-identity-off",
            f"cluster {target.cluster}",
            "it has no workload pool, so the checkpoint driver can't get a token for Cloud Storage",
            (quote(f"workloadIdentityConfig: {cluster.get('workloadIdentityConfig') or 'absent'}"),),
            (
                f"gcloud container clusters update {target.gcloud_cluster} "
                f"--workload-pool={target.project or 'PROJECT'}.svc.id.goog",
            ),
        )
    machines = {each.get("machine_type") for each in target.configurations.values()}
    for each in cluster.get("nodePools") or []:
        config = each.get("config") or {}
        mode = (config.get("workloadMetadataConfig") or {}).get("mode")
        if mode == "GKE_METADATA" or (machines and config.get("machineType") not in machines):
            continue
        yield Diagnosis(
            "metadata-server-off",
            f"node pool {each.get('name')}",
            "its nodes lack the GKE metadata server, so pods there get no tokens through Workload Identity",
            (quote(f"workloadMetadataConfig.mode: {mode or 'absent'}"),),
            (
                f"gcloud container node-pools update {each.get('name')} --cluster={target.gcloud_cluster} "
                "--workload-metadata=GKE_METADATA   # makes the pool's nodes anew: what runs there ends",
            ),
        )


def addons(case: Case) -> Iterator[Diagnosis]:
    """Are the add-ons on? Without them the kind CheckpointConfiguration does not exist."""
    target, cluster = case.target, case.evidence.one("cluster")
    configured = (cluster or {}).get("addonsConfig") or {}
    checkpointing = _enabled(configured, "highScaleCheckpointingConfig")
    missing = case.evidence.saw("definitions") and all(
        objects.name(each) != CHECKPOINT_DEFINITION for each in case.evidence.all("definitions")
    )
    shown = () if cluster is None else (quote(f"addonsConfig.highScaleCheckpointingConfig: {_shown(configured)}"),)
    if missing and checkpointing:
        yield Diagnosis(
            "addon-off",
            f"cluster {target.cluster}",
            "GKE says that HighScaleCheckpointing is enabled, but the kind CheckpointConfiguration is not there: the "
            "add-on is still being installed, or its installation failed",
            ('no matches for kind "CheckpointConfiguration" in version "checkpointing.gke.io/v1"', *shown),
            (
                "gcloud container operations list "
                f"--location={target.location or 'LOCATION'} --project={target.project or 'PROJECT'}",
                "kubectl get pods -n gke-managed-checkpointing",
            ),
            confidence=Confidence.LIKELY,
        )
    elif missing:
        yield Diagnosis(
            "addon-off",
            f"cluster {target.cluster}",
            "the kind CheckpointConfiguration is not there, because the add-on HighScaleCheckpointing is not enabled",
            ('no matches for kind "CheckpointConfiguration" in version "checkpointing.gke.io/v1"', *shown),
            (
                f"gcloud container clusters update {target.gcloud_cluster} "
                "--update-addons=HighScaleCheckpointing=ENABLED,GcsFuseCsiDriver=ENABLED",
            ),
            confidence=Confidence.LIKELY if cluster is None else Confidence.CERTAIN,
        )
    if cluster is not None and checkpointing and not _enabled(configured, "gcsFuseCsiDriverConfig"):
        yield Diagnosis(
            "fuse-off",
            f"cluster {target.cluster}",
            "the add-on GcsFuseCsiDriver is not enabled, by which the checkpoint driver mounts the bucket",
            (quote(f"addonsConfig.gcsFuseCsiDriverConfig: {configured.get('gcsFuseCsiDriverConfig') or 'absent'}"),),
            (f"gcloud container clusters update {target.gcloud_cluster} --update-addons=GcsFuseCsiDriver=ENABLED",),
        )


def status(case: Case) -> Iterator[Diagnosis]:
    """What does GKE say of the cluster and of its node pools?"""
    cluster = case.evidence.one("cluster")
    if cluster is None:
        return
    parts = [(f"cluster {case.target.cluster}", cluster)]
    parts += [(f"node pool {each.get('name')}", each) for each in cluster.get("nodePools") or []]
    for where, part in parts:
        said = [f"{one.get('code', '')}: {one.get('message', '')}" for one in part.get("conditions") or []]
        state = str(part.get("status") or "")
        texts = [text for text in (str(part.get("statusMessage") or ""), *said) if text.strip(": ")]
        if said and (found := _capacity(case, where, texts)) is not None:
            yield found
        elif state in ("ERROR", "DEGRADED", "RUNNING_WITH_ERROR", "STOPPING"):
            yield Diagnosis(
                "cluster-not-running",
                where,
                f"GKE says that it is {state}",
                tuple(quote(text) for text in texts) or (f"status: {state}",),
                (
                    f"gcloud container clusters describe {case.target.gcloud_cluster} "
                    "--format='yaml(status,conditions)'",
                ),
            )
        elif state in ("PROVISIONING", "RECONCILING"):
            yield Diagnosis(
                "cluster-not-running",
                where,
                f"GKE is still working on it ({state})",
                (f"status: {state}",),
                (
                    f"gcloud container operations list --location={case.target.location or 'LOCATION'} "
                    f"--project={case.target.project or 'PROJECT'} --filter='status!=DONE'   # and wait for its end",
                ),
                severity=Severity.NOTE,
            )


def operations(case: Case) -> Iterator[Diagnosis]:
    """Which operations failed lately, and were not repeated with success?"""
    latest: dict[tuple[str, str], Object] = {}
    for each in sorted(case.evidence.all("operations"), key=lambda one: str(one.get("startTime", ""))):
        latest[str(each.get("operationType")), str(each.get("targetLink"))] = each
    for each in latest.values():
        failure = each.get("error") or {}
        text = str(failure.get("message") or each.get("statusMessage") or "")
        failed = bool(failure.get("code") or failure.get("message")) or (each.get("status") == "ABORTING" and text)
        ago = objects.seconds_since(each.get("endTime") or each.get("startTime"), case.now)
        if not failed or (ago is not None and ago > RECENT_SECONDS):
            continue
        about = "/".join(str(each.get("targetLink", "")).split("/")[-2:])
        where = f"{each.get('operationType')} of {about}"
        found = _capacity(case, where, [text])
        yield (
            found
            if found is not None
            else Diagnosis(
                "operation-failed",
                where,
                "GKE gave the operation up; running the provisioning again tries it anew",
                (quote(f"operation {each.get('name')}: {text}"),),
                (
                    f"gcloud container operations describe {each.get('name')} "
                    f"--location={case.target.location or 'LOCATION'} --project={case.target.project or 'PROJECT'}",
                ),
            )
        )


RULES = (disabled, unreachable, elsewhere, workload_identity, addons, status, operations)


def _capacity(case: Case, where: str, texts: list[str]) -> Diagnosis | None:
    """Return the diagnosis of texts that tell of a quota or of a stockout."""
    project = case.target.project or "PROJECT"
    whole = " ".join(texts)
    quotes = tuple(quote(text) for text in texts)
    if _STOCKOUT.search(whole):
        return Diagnosis(
            "cloud-stockout",
            where,
            "Google Cloud has no such machines free in the zone now; no command brings them",
            quotes,
            (
                "wait, or ask for them otherwise: flex-start or a reservation in the cluster file's pool, or another "
                "zone in gke.node_locations",
            ),
        )
    if _QUOTA.search(whole):
        return Diagnosis(
            "cloud-quota",
            where,
            "the project's quota does not allow that many machines",
            quotes,
            (
                f"gcloud compute regions describe {_region(case.target.location)} --project={project} "
                "--format='table(quotas.metric,quotas.usage,quotas.limit)'",
                f"ask for more: https://console.cloud.google.com/iam-admin/quotas?project={project}",
            ),
        )
    return None


def _region(location: str) -> str:
    return location.rsplit("-", 1)[0] if re.fullmatch(r".+-.+\d-[a-z]", location) else location or "REGION"


def _enabled(addons_config: Mapping[str, Any], addon: str) -> bool:
    return bool((addons_config.get(addon) or {}).get("enabled"))


def _shown(addons_config: Mapping[str, Any]) -> str:
    found = addons_config.get("highScaleCheckpointingConfig")
    return "absent" if not found else str(found)
