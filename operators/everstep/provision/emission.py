"""What is left to do as texts for people who do it themselves: a shell script, or Terraform. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.provision.cloud import gcloud
from everstep.provision.cloud.hcl import comment
from everstep.spec.findings import errors_of

if TYPE_CHECKING:
    from everstep.provision.changes import Change
    from everstep.provision.steps import Report
    from everstep.spec.cluster import ClusterSpec


def script(report: Report, spec: ClusterSpec, file: str) -> str:
    """Return the changes as a shell script that stops at the first command that fails.

    :param file: the cluster file, as the caller named it
    """
    lines = ["#!/bin/sh", *_introduction(report, f"everstep provision {file} --mode apply would do"), "set -eu"]
    reached = False
    for change in report.left:
        lines += ["", _told(change)]
        if not reached and any(command.startswith("kubectl") for command in change.commands):
            lines.append(gcloud.get_credentials(spec))
            reached = True
        lines += change.commands
    lines += ["", f"# Last, to see whether all of it is ready: everstep provision {file}"]
    return "\n".join(lines)


def declarations(report: Report, file: str) -> str:
    """Return the changes as Terraform; what Terraform has no word for is a comment with its commands."""
    parts = [comment("\n".join(each.removeprefix("# ") for each in _introduction(report, f"{file} describes")))]
    for change in report.left:
        if change.terraform:
            parts.append(f"{_told(change)}\n{change.terraform.rstrip()}\n")
        else:
            parts.append(f"{_told(change)}\n{comment('Not for Terraform:')}{comment(chr(10).join(change.commands))}")
    return "\n".join(parts).rstrip()


def _introduction(report: Report, what: str) -> Iterator[str]:
    yield f"# What {what}, as things stand now: {len(report.left)} changes."
    for finding in report.findings:
        yield from comment(str(finding)).splitlines()
    if errors_of(report.findings):
        yield "# With these errors nothing would be changed: mend them first."


def _told(change: Change) -> str:
    return comment(str(change)).rstrip()
