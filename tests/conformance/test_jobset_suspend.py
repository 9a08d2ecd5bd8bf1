"""Suspending and resuming a JobSet."""

from __future__ import annotations

from tests.conformance.bodies import jobset
from tests.conformance.place import Place, conditions, essence


def test_suspend_takes_all_pods_away_and_resume_makes_new_ones(place: Place) -> None:
    place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    first = place.wait_for_pods("lm", 4)
    place.patch("jobsets", "lm", {"spec": {"suspend": True}})
    place.wait("pods", lambda found: not found)
    suspended = place.wait_for(
        "jobsets", "lm", lambda found: found["status"]["replicatedJobsStatus"][0]["suspended"] == 2
    )
    assert essence(conditions(suspended)["Suspended"]) == ("True", "SuspendedJobs", "jobset is suspended")
    assert suspended["status"]["restarts"] == 0
    assert suspended["status"]["replicatedJobsStatus"][0]["ready"] == 0
    job = place.get("jobs", "lm-slice-0")
    assert job["spec"]["suspend"] is True
    assert essence(conditions(job)["Suspended"]) == ("True", "JobSuspended", "Job suspended")
    place.wait_for_event("SuspendedJobs", "lm")

    place.patch("jobsets", "lm", {"spec": {"suspend": False}})
    again = place.wait_for_pods("lm", 4)
    assert not {pod["metadata"]["uid"] for pod in first} & {pod["metadata"]["uid"] for pod in again}
    resumed = place.wait_for("jobsets", "lm", lambda found: conditions(found)["Suspended"]["status"] == "False")
    assert essence(conditions(resumed)["Suspended"]) == ("False", "ResumeJobs", "jobset is resumed")
    assert resumed["status"]["restarts"] == 0
    assert place.wait_for_event("ResumeJobs", "lm")["type"] == "Normal"


def test_one_that_is_made_suspended_waits(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("lm", hosts=1, node_selector=place.only_here)
    body["spec"]["suspend"] = True
    place.create("jobsets", body)
    jobs = place.wait("jobs", lambda found: len(found) == 2)
    assert all(job["spec"]["suspend"] for job in jobs.values())
    place.wait_for("jobsets", "lm", lambda found: "Suspended" in conditions(found))
    assert place.list("pods") == []
    place.patch("jobsets", "lm", {"spec": {"suspend": False}})
    place.wait_for_pods("lm", 2)


def test_where_it_runs_may_change_while_it_is_suspended(place: Place) -> None:
    place.add_nodes(1)
    body = jobset("lm", hosts=1)
    body["spec"]["suspend"] = True
    created = place.create("jobsets", body)
    place.wait("jobs", lambda found: len(found) == 2)
    replicated = created["spec"]["replicatedJobs"]
    replicated[0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = place.only_here
    place.patch("jobsets", "lm", {"spec": {"replicatedJobs": replicated}})
    place.patch("jobsets", "lm", {"spec": {"suspend": False}})
    assert all(pod["spec"]["nodeSelector"] == place.only_here for pod in place.wait_for_pods("lm", 2))
