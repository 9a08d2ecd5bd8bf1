"""Whether this machine's clock can be gone by: it tells what is young, from the future, or old enough to be emptied."""

from __future__ import annotations

from datetime import timedelta

from everstep.clients.storage import BucketClient
from everstep.retain.plan import RetentionRefused
from everstep.retain.words import duration
from everstep.spec.findings import error

MAY_BE_OFF_BY = timedelta(minutes=5)


def refuse_wrong(bucket: BucketClient) -> None:
    """Compare the clock with the storage service's, as its first listing told it. Raises RetentionRefused."""
    ahead = bucket.clock_ahead
    if ahead is None or abs(ahead) <= MAY_BE_OFF_BY:
        return
    way = "ahead of" if ahead > timedelta(0) else "behind"
    raise RetentionRefused(
        "retention does not go by a wrong clock",
        [
            error(
                "this machine's clock",
                f"{duration(abs(ahead))} {way} that of gs://{bucket.name}",
                f"at most {duration(MAY_BE_OFF_BY)} between them",
                "set it: by it, what is young or still uploading would be taken for old, and trash emptied too early",
            )
        ],
    )
