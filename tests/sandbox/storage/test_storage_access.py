"""Rights in the sandbox's Cloud Storage: policies, conditions, custom roles, tokens and customer-managed keys."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.oauth2 import service_account

from everstep_sandbox.google.state import NUMBER, PROJECT
from everstep_sandbox.google.testing import RunningGoogle, running_google
from everstep_sandbox.stack.furnish import RequestError, request
from everstep_sandbox.storage.conditions import BadCondition, Subject, check, holds

Object = dict[str, Any]

KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/ring/cryptoKeys/key"
AGENT = f"serviceAccount:service-{NUMBER}@gs-project-accounts.iam.gserviceaccount.com"


class Cloud:
    """Both servers of one project."""

    def __init__(self, google: RunningGoogle, address: str) -> None:
        self.google = google
        self.address = address
        self.owner = storage.Client(
            project=PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": address}
        )

    def client(self, name: str) -> storage.Client:
        """A client with the key file of a service account."""
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        credentials = service_account.Credentials.from_service_account_file(
            str(self.google.identity(name)), scopes=scopes
        )
        return storage.Client(project=PROJECT, credentials=credentials, client_options={"api_endpoint": self.address})

    def grant(self, bucket: str, name: str, role: str, condition: Object | None = None) -> None:
        policy = self.owner.bucket(bucket).get_iam_policy(requested_policy_version=3)
        member = f"serviceAccount:{name}@{PROJECT}.iam.gserviceaccount.com"
        binding: Object = {"role": role, "members": {member}}
        policy.version = 3
        policy.bindings = [*policy.bindings, {**binding, **({"condition": condition} if condition else {})}]
        self.owner.bucket(bucket).set_iam_policy(policy)

    def policy_of(self, resource: str, *bindings: Object) -> None:
        url = f"{self.google.address}/v1/{resource}:setIamPolicy"
        request("POST", url, {"policy": {"bindings": list(bindings)}})


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    directory = tmp_path_factory.mktemp("project")
    with running_google(directory) as google:
        port_file = directory / "storage.port"
        options = [f"--directory={directory}/storage", f"--port-file={port_file}", f"--parent={os.getpid()}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "everstep_sandbox.storage", f"--sandbox={directory}", *options]
        )
        try:
            deadline = time.monotonic() + 20
            while not port_file.exists():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            yield Cloud(google, f"http://127.0.0.1:{port_file.read_text()}")
        finally:
            process.kill()
            process.wait()


def test_bucket_comes_with_its_projects_policy(cloud: Cloud) -> None:
    bucket = cloud.owner.create_bucket("first", location="us-east5")
    assert bucket.project_number == int(NUMBER) and bucket.location == "US-EAST5"
    policy = bucket.get_iam_policy(requested_policy_version=3)
    owners = {f"projectEditor:{PROJECT}", f"projectOwner:{PROJECT}"}
    assert {"role": "roles/storage.legacyBucketOwner", "members": owners} in list(policy.bindings)
    assert cloud.owner.get_service_account_email() == AGENT.partition(":")[2]


def test_roles_allow_what_they_hold_and_nothing_else(cloud: Cloud) -> None:
    cloud.owner.create_bucket("shared").blob("a/one").upload_from_string("1")
    for name, role in (("reader-1", "objectViewer"), ("writer-1", "objectUser"), ("adder-1", "objectCreator")):
        cloud.grant("shared", name, f"roles/storage.{role}")
    reader, writer, adder = (cloud.client(f"{name}-1").bucket("shared") for name in ("reader", "writer", "adder"))
    assert reader.blob("a/one").download_as_bytes() == b"1"
    assert [blob.name for blob in writer.list_blobs()] == ["a/one"]
    refusals: list[tuple[str, Any]] = [
        ("storage.objects.create", lambda: reader.blob("b").upload_from_string("2")),
        ("storage.objects.list", lambda: list(cloud.client("nobody-1").list_blobs("shared"))),
        ("storage.buckets.getIamPolicy", writer.get_iam_policy),
        ("storage.buckets.get", writer.reload),
        ("storage.objects.get", lambda: adder.blob("a/one").download_as_bytes()),
        ("storage.objects.delete", lambda: adder.blob("a/one").upload_from_string("over")),
        ("storage.buckets.create", lambda: cloud.client("writer-1").create_bucket("own")),
    ]
    for permission, call in refusals:
        with pytest.raises(Exception, match="403") as refused:
            call()
        # A download is refused in plain text, which the client does not show.
        assert permission in str(refused.value) or permission == "storage.objects.get", permission
    adder.blob("a/two").upload_from_string("2")
    writer.blob("a/two").upload_from_string("3")
    asked = ["storage.objects.create", "storage.objects.get", "storage.buckets.setIamPolicy"]
    assert writer.test_iam_permissions(asked) == asked[:2]
    assert request("GET", f"{cloud.address}/storage/v1/b/shared/o")["items"][1]["size"] == "1"


def test_conditions_bound_a_grant_to_a_prefix(cloud: Cloud) -> None:
    cloud.owner.create_bucket("runs")
    start = "projects/_/buckets/runs/objects/run-1/"
    prefix = 'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith("run-1/")'
    expression = f'resource.name.startsWith("{start}") || {prefix}'
    cloud.grant("runs", "run-one", "roles/storage.objectUser", {"title": "run-1", "expression": expression})
    bucket = cloud.client("run-one").bucket("runs")
    bucket.blob("run-1/status.json").upload_from_string("{}")
    assert [blob.name for blob in bucket.list_blobs(prefix="run-1/")] == ["run-1/status.json"]
    for call in (
        lambda: bucket.blob("run-2/status.json").upload_from_string("{}"),
        lambda: list(bucket.list_blobs(prefix="run-")),
        lambda: list(bucket.list_blobs()),
    ):
        with pytest.raises(Exception, match="403"):
            call()


def test_custom_role_and_project_wide_grant(cloud: Cloud) -> None:
    cloud.owner.create_bucket("wide")
    request("POST", f"{cloud.google.address}/v1/projects/{PROJECT}/services/iam.googleapis.com:enable", {})
    role = {"roleId": "bucketsOnly", "role": {"includedPermissions": ["storage.buckets.get"]}}
    request("POST", f"{cloud.google.address}/v1/projects/{PROJECT}/roles", role)
    member = f"serviceAccount:checker@{PROJECT}.iam.gserviceaccount.com"
    cloud.policy_of(f"projects/{PROJECT}", {"role": f"projects/{PROJECT}/roles/bucketsOnly", "members": [member]})
    bucket = cloud.client("checker").bucket("wide")
    bucket.reload()
    with pytest.raises(Exception, match=r"storage\.buckets\.update"):
        bucket.patch()
    cloud.policy_of(f"projects/{PROJECT}")


def test_policies_that_iam_would_not_take(cloud: Cloud) -> None:
    cloud.owner.create_bucket("strict")
    url = f"{cloud.address}/storage/v1/b/strict/iam"
    fine: Object = {"role": "roles/storage.objectUser", "members": ["serviceAccount:a@b"]}
    for policy, told in (
        ({"bindings": [{**fine, "members": ["somebody"]}]}, "Invalid member: somebody"),
        ({"bindings": [{**fine, "role": "objectUser"}]}, "Role objectUser is not supported"),
        ({"bindings": [{**fine, "condition": {"expression": "true"}}]}, "must specify version 3"),
        ({"version": 3, "bindings": [{**fine, "condition": {"expression": "a.b"}}]}, "compilation failed"),
    ):
        with pytest.raises(RequestError, match=told):
            request("PUT", url, policy)


def test_token_that_proves_nothing_is_refused(cloud: Cloud) -> None:
    with pytest.raises(RequestError) as refused:
        request("GET", f"{cloud.address}/storage/v1/b?project={PROJECT}", None, "ya29.made.up")
    assert refused.value.code == 401


def test_door_gives_a_workload_its_own_address_for_ever(cloud: Cloud) -> None:
    principal = "principal://iam.googleapis.com/x.svc.id.goog/subject/ns/default/sa/default"
    first = request("POST", f"{cloud.address}/_sandbox/doors", {"identity": principal})["address"]
    assert request("POST", f"{cloud.address}/_sandbox/doors", {"identity": principal})["address"] == first
    with pytest.raises(RequestError, match=r"Caller does not have storage\.buckets\.list"):
        request("GET", f"{first}/storage/v1/b?project={PROJECT}")


def test_bucket_whose_key_cloud_storage_may_not_use_takes_nothing(cloud: Cloud) -> None:
    google = cloud.google
    request("POST", f"{google.address}/v1/projects/{PROJECT}/services/cloudkms.googleapis.com:enable", {})
    google.command("keys", {"name": KEY})
    bucket = cloud.owner.bucket("sealed")
    bucket.default_kms_key_name = KEY
    with pytest.raises(Exception, match="Permission denied on Cloud KMS key"):
        bucket.create()
    binding = {"role": "roles/cloudkms.cryptoKeyEncrypterDecrypter", "members": [AGENT]}
    cloud.policy_of(KEY, binding)
    bucket.create()
    bucket.blob("one").upload_from_string("1")
    cloud.policy_of(KEY)
    with pytest.raises(Exception, match="Permission denied on Cloud KMS key"):
        bucket.blob("two").upload_from_string("2")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('resource.name == "a/b"', True),
        ("resource.name != 'a/b'", False),
        ('resource.name.startsWith("a/") && resource.type == "storage.googleapis.com/Object"', True),
        ('!(resource.name.endsWith("/b")) || resource.service == "storage.googleapis.com"', True),
        ('!resource.name.startsWith("a/")', False),
        ('api.getAttribute("x", "none") == "none"', True),
        ('api.getAttribute("given", "").startsWith("va")', True),
    ],
)
def test_conditions(expression: str, expected: bool) -> None:
    assert holds(expression, Subject("a/b", attributes={"given": "value"})) is expected


@pytest.mark.parametrize(
    "expression", ["", "resource.name", "resource.name ==", "request.time < x", 'resource.name == "a" &&', "(", "a b"]
)
def test_expressions_that_are_no_conditions(expression: str) -> None:
    with pytest.raises(BadCondition):
        check(expression)
