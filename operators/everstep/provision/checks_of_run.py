"""Preflight's looks at what is there of the run already: its JobSet, its lease, its folder in the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from everstep.checkpoints.catalogue import BackupState
from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.errors import Conflict, Invalid, NotFound
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS
from everstep.clients.run_folder import RunContents
from everstep.clients.storage import BucketClient
from everstep.launch import decision, manifest
from everstep.launch.lease import LeaseKeeper
from everstep.spec.findings import Finding, error, note, warning
from everstep.spec.training import TrainingSpec
from everstep.watch import run_state


def jobset(client: KubernetesClient, spec: TrainingSpec, holder: str | None) -> Iterator[Finding]:
    """Is there a JobSet of the run's name, and may it be touched?"""
    found = client.find(JOBSETS, spec.name, spec.cluster_spec.namespace)
    if found is None:
        return
    state = run_state.of_jobset(found)
    decided = decision.decide(
        state, run=spec.name, holder=holder or state.holder or "", spec_hash=manifest.fingerprint(spec)
    )
    if decided.finding is not None:
        yield decided.finding
    else:
        yield note(f"JobSet {state.namespace}/{state.name}", f"{state.phase}, launch {state.launch}", "", decided.why)


def admission(client: KubernetesClient, spec: TrainingSpec) -> Iterator[Finding]:
    """Would the cluster take the run's JobSet: its rules, its webhooks, its quota? Asked by a dry run.

    Raises Forbidden when the identity may not create JobSets.
    """
    namespace = spec.cluster_spec.namespace
    try:
        client.create(JOBSETS, manifest.build(spec, launch=1, holder="preflight"), namespace, dry_run=True)
    except Conflict:
        return
    except (Invalid, NotFound) as failure:
        yield error(
            f"JobSet {namespace}/{spec.name}",
            f"would not be taken: {failure.message}",
            "a JobSet that the cluster takes",
            "do what the cluster's own sentence says",
        )


def lease(bucket: BucketClient, client: KubernetesClient, spec: TrainingSpec, holder: str | None) -> Iterator[Finding]:
    """Does somebody else hold the run?"""
    keeper = LeaseKeeper(bucket, client, spec.name, holder or "")
    binding = keeper.binding()
    if binding is not None:
        yield (
            binding if holder is not None else warning(binding.object, binding.found, binding.expected, binding.remedy)
        )


def folder(client: BucketClient, spec: TrainingSpec) -> Iterator[Finding]:
    """What would be restored, what is lost, and is anything in the way?"""
    contents = client.run(run_folder.contents(RunFolder(client.name, spec.name), spec.shape, everything=False))
    where = contents.folder.url()
    if contents.hierarchy_test_left:
        yield warning(
            f"{where}/atomic-rename-test",
            "left behind by the replicator's self-test",
            "nothing",
            "it is there for a moment at every start; if it stays, the bucket is not hierarchical",
        )
    if contents.forced is not None:
        yield from _forced(contents)
    yield from _restore_point(contents, spec)
    yield from _odd_backups(contents)


def _restore_point(contents: RunContents, spec: TrainingSpec) -> Iterator[Finding]:
    where = contents.folder.url()
    good = contents.last_known_good
    if good is None:
        if contents.is_empty:
            yield note(where, "nothing to restore: the run starts from step 0")
        else:
            states = ", ".join(f"{each.name} {each.state}" for each in contents.catalogue.backups[:3]) or "saves"
            tell = warning if spec.allow_fresh_start else error
            yield tell(
                where,
                f"nothing that can be restored, though there is {states}",
                "a complete checkpoint, or leave to start from nothing",
                "look at why (everstep status), or set allow_fresh_start: true",
            )
        return
    status = contents.status or {}
    lost = ""
    if isinstance(status.get("step"), int) and status["step"] > good.step:
        lost = (
            f"; the run was at step {status['step']}, so {status['step'] - good.step} steps are lost unless RAM disks "
        )
        lost += "still hold them"
    final = f" of {spec.final_step}" if spec.final_step else ""
    yield note(where, f"step {good.step}{final} would be restored from {good.tier} {good.name}{lost}")
    if spec.final_step is not None and good.step >= spec.final_step:
        yield note(where, f"step {good.step} is there already", f"a final step above it, not {spec.final_step}")
    if good.shadowed_by:
        yield error(
            where,
            f"backups {', '.join(good.shadowed_by)} are newer than the last known good one and not to be restored",
            "only backups that may be restored, since the replicator takes the newest date",
            "take the run back properly (everstep resume), which renames them",
        )


def _forced(contents: RunContents) -> Iterator[Finding]:
    where = contents.folder.url(contents.folder.restore_version)
    named = contents.catalogue.named(contents.forced or "")
    if named is not None and named.state is BackupState.COMPLETE:
        yield note(where, f"forces a restore of {named.name}, step {named.step}")
    elif contents.forced in contents.unjudged:
        yield warning(where, f"forces a restore of {contents.forced}", "that backup to be complete")
    else:
        yield error(
            where,
            f"forces a restore of {contents.forced!r}, which is {named.state if named else 'not there'}",
            "a complete backup: with any other the run starts from nothing and RAM disks are wiped",
            "delete the object, or name a complete backup",
        )


def _odd_backups(contents: RunContents) -> Iterator[Finding]:
    newest = next(iter(contents.catalogue.backups), None)
    if newest is not None and newest.state in (BackupState.INCOMPLETE, BackupState.FOREIGN):
        age = datetime.now(UTC) - newest.time if newest.time else None
        yield warning(
            contents.folder.url(contents.folder.backup_prefix(newest.name)),
            f"the newest backup is {newest.state}: {'; '.join(newest.reasons[:2])}",
            "a complete one",
            f"it is {age.total_seconds() / 3600:.1f} h old" if age else "",
        )
