"""The gate after a run: complete means that the final step is complete in a tier that outlives the nodes.

A container that ends with 0 proves little: a trainer may have given up politely, and what is in RAM disks is gone with
the nodes. So the gate looks into the bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.run_operator import RunOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.clients.run_folder import RunContents


class FinalStepGateOperator(RunOperator):
    """Fail unless the run's final step is complete in the bucket, as a backup or as a durable save.

    Without a `final_step` in the run file, any complete checkpoint passes. Returns step, tier and name of what is
    there.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Look into the run's folder."""
        from everstep.checkpoints.layout import RunFolder
        from everstep.clients import run_folder

        spec = self.spec()
        self.show_links(context, spec)
        bucket = self.bucket_client(spec)
        contents = self.told(
            lambda: bucket.run(run_folder.contents(RunFolder(spec.bucket, spec.name), spec.shape, everything=False))
        )
        good = contents.last_known_good
        wanted = spec.final_step or 1
        if good is None or good.step < wanted:
            raise AirflowFailException(
                f"run {spec.name!r} is not complete: step {wanted} was expected in {contents.folder.url()}, there is "
                f"{describe(contents)}. Launch it again to go on from there; what is in RAM disks only is lost when "
                "the nodes go. checkpoints.durable.at_end: true saves the last step to the bucket."
            )
        self.log.info("Step %d is complete in the bucket: %s %s.", good.step, good.tier, good.name)
        return {"step": good.step, "tier": good.tier, "name": good.name}


def describe(contents: RunContents) -> str:
    """Return what a run's folder holds, in words."""
    parts = [
        f"backup {backup.name} ({backup.state}, step {backup.step if backup.step is not None else 'unknown'})"
        for backup in contents.catalogue.backups[:3]
    ]
    parts += [f"durable save of step {step}" for step in contents.durable_steps[-2:]]
    parts += [f"unfinished durable save of step {step}" for step in contents.incomplete_durable_steps[-2:]]
    status = contents.status or {}
    if isinstance(status.get("step"), int):
        parts.append(f"a status that says step {status['step']}")
    return ", ".join(parts) or "nothing"
