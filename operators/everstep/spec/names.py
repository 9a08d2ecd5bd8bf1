"""Run names that fit every limit they meet.

A run's name is its JobSet's name, its folder in the bucket and a component of regular expressions and globs of the
replicator, so it is a DNS-1035 label. Kubernetes names a JobSet's pods `<jobset>-<job>-<job index>-<pod index>-<5
characters>` and a pod's name becomes its host name: 63 characters at most.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from everstep.spec.findings import Finding, error

REPLICATED_JOB = "slice"
POD_NAME_LIMIT = 63
POD_SUFFIX = len("-") + 5
HASH_LENGTH = 8

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def longest_run_name(slices: int, nodes_per_slice: int) -> int:
    """Return how many characters a run name may have when its JobSet has that many slices and nodes."""
    tail = f"-{REPLICATED_JOB}-{slices - 1}-{nodes_per_slice - 1}"
    return POD_NAME_LIMIT - POD_SUFFIX - len(tail)


def check_run_name(name: str, slices: int, nodes_per_slice: int, object: str = "name") -> list[Finding]:
    """Return why `name` can't name a run of that shape; nothing when it can."""
    findings = []
    if not _DNS_1035.fullmatch(name):
        findings.append(
            error(
                object,
                f"{name!r}",
                "lower-case letters, digits and '-', starting with a letter, ending with a letter or digit",
                f"use {sanitise(name, slices, nodes_per_slice)!r}",
            )
        )
    limit = longest_run_name(slices, nodes_per_slice)
    if len(name) > limit:
        findings.append(
            error(
                object,
                f"{name!r} has {len(name)} characters",
                f"at most {limit} with {slices} slices of {nodes_per_slice} nodes, because pods are named "
                f"<run>-{REPLICATED_JOB}-{slices - 1}-{nodes_per_slice - 1}-<5 characters> within {POD_NAME_LIMIT}",
                f"use {sanitise(name, slices, nodes_per_slice)!r}",
            )
        )
    return findings


def sanitise(text: str, slices: int, nodes_per_slice: int) -> str:
    """Return a run name made from any text, such as an Airflow run id.

    Equal texts give equal names. A text that had to be changed gets a hash of the whole original, so that different
    texts keep different names. A text that is a valid name already comes back as it is.
    """
    limit = longest_run_name(slices, nodes_per_slice)
    if _DNS_1035.fullmatch(text) and len(text) <= limit:
        return text
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"run-{plain}".rstrip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
    head = plain[: limit - HASH_LENGTH - 1].rstrip("-")
    return f"{head}-{digest}"
