"""The engine of provisioning, on steps that make real files: looked at again after each change, nothing remembered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from everstep.clients.errors import Conflict, Forbidden, NotConfigured, Unavailable
from everstep.provision import waits
from everstep.provision.changes import Change, Look, Mode, Waiting
from everstep.provision.everything import provision
from everstep.provision.site import Site
from everstep.provision.steps import Report, advance, survey
from everstep.spec.findings import FindingsError, error, note, warning


class Files:
    """Makes files in a folder, one after the other."""

    title = "files"

    def __init__(self, folder: Path, names: tuple[str, ...], *, works: bool = True, wait: str = "") -> None:
        self.folder, self.names, self.works, self.wait = folder, names, works, wait
        self.made: list[str] = []

    def look(self) -> Look:
        missing = [name for name in self.names if not (self.folder / name).exists()]
        return Look(
            (note("folder", f"{len(self.names) - len(missing)} files"),), tuple(self.change(name) for name in missing)
        )

    def change(self, name: str) -> Change:
        def act() -> Waiting | None:
            self.made.append(name)
            if self.works:
                (self.folder / name).touch()
            return Waiting(self.wait, {"file": name}, f"file {name}", 5.0) if self.wait else None

        return Change(
            f"file {name}", "create", "absent", "there", act, (f"touch {name}",), f'resource "file" "{name}" {{}}'
        )


class Refusing:
    title = "refusing"

    def look(self) -> Look:
        return Look((warning("disk", "slow"), error("disk", "full", "room", "rm something")), ())


def test_a_survey_shows_all_steps_and_changes_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path, ("a", "b"))
    report = survey([Refusing(), files], Mode.EMIT)
    assert [str(finding.severity) for finding in report.findings] == ["warning", "error", "note"]
    assert [change.object for change in report.left] == ["file a", "file b"]
    assert report.as_dict()["left"][0]["commands"] == ["touch a"]
    assert files.made == [] and not list(tmp_path.iterdir())


def test_changes_are_made_one_by_one_and_a_second_run_makes_none(tmp_path: Path) -> None:
    files, report = Files(tmp_path, ("a", "b")), Report(Mode.APPLY)
    assert advance(files, report, lambda line: None) is None
    assert files.made == ["a", "b"]
    assert [one["object"] for one in report.done] == ["file a", "file b"]
    again = Report(Mode.APPLY)
    assert advance(files, again, lambda line: None) is None
    assert (again.done, files.made) == ([], ["a", "b"])


def test_an_error_stops_before_any_change(tmp_path: Path) -> None:
    class Both(Files):
        def look(self) -> Look:
            return Look((error("file a", "not ours"),), super().look().changes)

    step = Both(tmp_path, ("a",))
    with pytest.raises(FindingsError, match="not ours"):
        advance(step, Report(Mode.APPLY), lambda line: None)
    assert step.made == []


def test_a_change_that_does_not_help_is_not_made_for_ever(tmp_path: Path) -> None:
    step = Files(tmp_path, ("a",), works=False)
    with pytest.raises(FindingsError, match="3 tries of 'create'"):
        advance(step, Report(Mode.APPLY), lambda line: None)
    assert len(step.made) == 3


def test_a_report_comes_back_from_plain_data(tmp_path: Path) -> None:
    report = Report(Mode.APPLY)
    advance(Files(tmp_path, ("a",)), report, lambda line: None)
    back = Report.of(report.as_dict())
    assert (back.mode, back.findings, back.done) == (report.mode, report.findings, report.done)


class FileAppears:
    """A wait of the tests' own kind: for a file that another process makes, or a failure on request."""

    def __init__(self, arguments: dict[str, Any], access: dict[str, Any]) -> None:
        self.file = str(arguments["file"])

    async def outcome(self) -> str:
        if self.file == "bad":
            raise FindingsError("the disk is broken", [error("file bad", "unwritable")])
        return f"{self.file} is there"


@pytest.fixture
def own_kind(monkeypatch: pytest.MonkeyPatch) -> str:
    sys.modules["everstep_tests_own_kind"] = sys.modules[__name__]
    monkeypatch.setitem(waits.KINDS, "file", "everstep_tests_own_kind:FileAppears")
    return "file"


def test_waiting_happens_between_two_looks(tmp_path: Path, own_kind: str, sandbox_site: Site) -> None:
    told: list[str] = []
    step = Files(tmp_path, ("a", "b"), wait=own_kind)
    report = provision(sandbox_site, [step], Mode.APPLY, told.append)
    assert len(report.done) == 2
    assert [line for line in told if line.endswith("is there")] == ["files: a is there", "files: b is there"]


def test_a_wait_that_fails_ends_it_with_its_own_words(tmp_path: Path, own_kind: str, sandbox_site: Site) -> None:
    step = Files(tmp_path, ("bad", "later"), wait=own_kind)
    with pytest.raises(FindingsError, match="the disk is broken"):
        provision(sandbox_site, [step], Mode.APPLY, lambda line: None)
    assert step.made == ["bad"]


@pytest.fixture
def sandbox_site() -> Site:
    from everstep.provision.site import load_site

    return load_site(Path(__file__).parents[2] / "dags" / "clusters" / "sandbox.yaml", kubeconfig="/nowhere")


def test_the_site_knows_the_runs_of_its_cluster(sandbox_site: Site) -> None:
    assert [run.name for run in sandbox_site.runs] == ["stdlib-lm"]
    assert sandbox_site.folder.name == "clusters"


def test_killed_between_any_two_changes_it_converges(tmp_path: Path) -> None:
    """A process that makes ten files slowly is killed again and again; together the processes make each file once."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import sys, time
            from pathlib import Path
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import test_steps
            from everstep.provision.steps import Report, advance
            from everstep.provision.changes import Mode

            class Slow(test_steps.Files):
                def look(self):
                    time.sleep(0.01)
                    return super().look()

            folder = Path(sys.argv[1])
            step = Slow(folder, tuple("abcdefghij"))
            report = Report(Mode.APPLY)
            advance(step, report, lambda line: (folder.parent / "log").open("a").write(line + "\\n"))
            """
        )
    )
    folder = tmp_path / "made"
    folder.mkdir()
    kills = 0
    while kills < 10:
        goal = len(list(folder.iterdir())) + 2
        running = subprocess.Popen([sys.executable, str(program), str(folder)])
        while running.poll() is None and len(list(folder.iterdir())) < goal:
            time.sleep(0.002)
        if running.poll() is not None:
            break
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        kills += 1
    assert running.returncode == 0 and kills > 1
    assert sorted(path.name for path in folder.iterdir()) == list("abcdefghij")
    created = [line for line in (tmp_path / "log").read_text().splitlines() if "create file" in line]
    assert len(created) <= 10 + kills


def test_what_somebody_else_was_faster_with_is_looked_at_again(tmp_path: Path) -> None:
    class Raced(Files):
        def change(self, name: str) -> Change:
            def act() -> None:
                self.made.append(name)
                (self.folder / name).touch()
                raise Conflict(f"{name} was made a moment ago")

            return Change(f"file {name}", "create", "absent", "there", act)

    step, report, told = Raced(tmp_path, ("a",)), Report(Mode.APPLY), list[str]()
    assert advance(step, report, told.append) is None
    assert step.made == ["a"] and any("a moment ago: looking again" in line for line in told)
    # It may have been theirs: only what is known to be one's own is told as done.
    assert report.done == []


def test_a_conflict_that_stays_is_told_with_the_services_words(tmp_path: Path) -> None:
    class Taken(Files):
        def change(self, name: str) -> Change:
            def act() -> None:
                self.made.append(name)
                raise Conflict("the name belongs to somebody else")

            return Change(f"file {name}", "create", "absent", "there", act)

    step = Taken(tmp_path, ("a",))
    with pytest.raises(FindingsError, match="gets nowhere") as refused:
        advance(step, Report(Mode.APPLY), lambda line: None)
    assert "the name belongs to somebody else" in str(refused.value)
    assert len(step.made) == 3


def test_only_the_latest_look_is_told(tmp_path: Path) -> None:
    report = Report(Mode.APPLY)
    advance(Files(tmp_path, ("a", "b")), report, lambda line: None)
    assert [finding.found for finding in report.findings] == ["2 files"]
    assert Report.of(report.as_dict()).findings == report.findings


class Failing:
    def __init__(self, title: str, failure: Exception) -> None:
        self.title, self.failure, self.looked = title, failure, 0

    def look(self) -> Look:
        self.looked += 1
        raise self.failure


def test_missing_credentials_are_one_finding_for_all_steps(tmp_path: Path) -> None:
    steps = [
        Failing("APIs", NotConfigured("no credentials were found")),
        Failing("cluster", NotConfigured("no credentials were found")),
    ]
    report = survey([*steps, Files(tmp_path, ("a",))], Mode.CHECK)
    assert [finding.object for finding in report.findings] == ["APIs, cluster", "folder"]
    assert "application-default login" in report.findings[0].remedy
    assert [change.object for change in report.left] == ["file a"]


def test_a_network_that_is_away_is_waited_for_once(tmp_path: Path) -> None:
    steps = [Failing("APIs", Unavailable("no route")), Failing("cluster", Unavailable("no route either"))]
    report = survey([*steps, Files(tmp_path, ("a",))], Mode.CHECK)
    assert [step.looked for step in steps] == [1, 0]
    assert not report.left
    assert [finding.object for finding in report.findings] == ["APIs", "cluster, files"]
    assert all(finding.severity == "error" for finding in report.findings)


def test_a_refusal_while_changing_names_step_and_remedy(sandbox_site: Site) -> None:
    refusal = Forbidden("HTTP 403: storage.buckets.create is lacking", status=403)
    with pytest.raises(FindingsError) as refused:
        provision(sandbox_site, [Failing("buckets", refusal)], Mode.APPLY, lambda line: None)
    (finding,) = refused.value.findings
    assert finding.object == "buckets" and "everstep permissions --for provisioner" in finding.remedy


def test_a_survey_tells_of_what_is_still_under_way(tmp_path: Path) -> None:
    class Pending:
        title = "cluster"

        def look(self) -> Look:
            return Look(waiting=Waiting("operation", {}, "an upgrade by somebody else", 60.0))

    report = survey([Pending()], Mode.CHECK)
    (finding,) = report.findings
    assert finding.severity == "warning" and "an upgrade by somebody else" in finding.found
    assert report.waiting == ["an upgrade by somebody else"]
