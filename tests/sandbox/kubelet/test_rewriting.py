"""Mount paths, pod names and variables in texts."""

from __future__ import annotations

import pytest

from everstep_sandbox.kubelet.rewriting import Rewriter, expand

REWRITER = Rewriter(
    {"/local": "/host/nodes/a/local/client", "/local/inner": "/host/inner", "/etc/everstep": "/host/info"},
    {"js-slice-0-0.js": "127.16.1.2"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/local", "/host/nodes/a/local/client"),
        ("/local/", "/host/nodes/a/local/client/"),
        ("--dir=/local/x --other=/local", "--dir=/host/nodes/a/local/client/x --other=/host/nodes/a/local/client"),
        ("/local/inner/x", "/host/inner/x"),
        ("cat '/local'; ls \"/etc/everstep\"", "cat '/host/nodes/a/local/client'; ls \"/host/info\""),
        ("PATH=/usr:/local:/bin", "PATH=/usr:/host/nodes/a/local/client:/bin"),
        ("/locality /local-ssd /local.d /usr/local gs://b/local ./local x/local", None),
        ("js-slice-0-0.js:8476", "127.16.1.2:8476"),
        ("http://js-slice-0-0.js.default.svc.cluster.local/x", "http://127.16.1.2/x"),
        ("my-js-slice-0-0.js js-slice-0-0.js.example.com js-slice-0-1.js", None),
    ],
)
def test_text(text: str, expected: str | None) -> None:
    assert REWRITER.text(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A) $(B)", "1 $(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
    ],
)
def test_expand(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected
