"""Takes secrets out of evidence, before it is written, printed or judged. Pure.

What is taken out is replaced by `[removed]`, so that it shows that there was something. Too much rather than too
little: no diagnosis needs a value that looks like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from everstep.doctor.evidence import Evidence, Object

REMOVED = "[removed]"

_WORDS = (
    r"pass(?:word|wd|phrase)?|secrets?|tokens?|credentials?|cookie|bearer|auth(?:orization)?|signature|dockerconfigjson|"
    r"(?:api|access|private|client|secret|signing|encryption|account|ssh|hmac|storage|license)[_-]?keys?(?:[_-]?id)?"
)
# Names whose values are taken out: environment variables, keys of JSON and YAML, flags.
_SECRET_NAME = re.compile(rf"(?:^|[_\-.]|(?<=[a-z])(?=[A-Z]))(?:{_WORDS})$|key$|^key[_-]", re.IGNORECASE)
# Such names that hold no secret, but say where one is or how long it lives.
_HARMLESS_NAMES = re.compile(
    r"name$|^key$|expirationseconds$|namespace$|path$|url$|_dir$|_file$|^topologykey$|^kmskey|kmskey(name)?$|"
    r"cryptokey(name)?$|^automountserviceaccounttoken$|^defaultkmskeyname$|^fieldpath$",
    re.IGNORECASE,
)
# Annotations that repeat a whole object, with all that was taken out of it elsewhere.
_COPIES = frozenset({"kubectl.kubernetes.io/last-applied-configuration", "client.lifecycle.config.k8s.io/last-applied"})
_OUR_VARIABLES = "EVERSTEP_"

_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REMOVED),
    # JSON in base64, as registries' logins are written.
    (re.compile(r"\beyJ[\w+/=-]{20,}"), REMOVED),
    (re.compile(r"\bya29\.[\w.-]+"), REMOVED),
    (re.compile(r"\b1//[\w-]{20,}"), REMOVED),
    (re.compile(r"\bAIza[\w-]{20,}"), REMOVED),
    (re.compile(r"\bGOOG[\w]{16,}"), REMOVED),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), REMOVED),
    (
        re.compile(r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|sk-|pk-|npm_|dckr_pat_|pypi-)[\w-]{10,}"),
        REMOVED,
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(\w[\w+.-]*://)[^\s/@:]+:[^\s/@]+@"), rf"\1{REMOVED}@"),
    (
        re.compile(
            r"(?i)([?&](?:x-goog-|x-amz-)?(?:signature|credential|security-token|sig|googleaccessid|access_token|id_token|"
            r"key|token|awsaccesskeyid)=)[^&\s\"'<>]+"
        ),
        rf"\1{REMOVED}",
    ),
    # {"name": "HF_TOKEN", "value": "…"}, also inside a string of JSON.
    (
        re.compile(
            rf"(?i)(\\*\"name\\*\"\s*:\s*\\*\"[\w.-]*(?:{_WORDS}|key)\\*\"\s*,\s*\\*\"value\\*\"\s*:\s*\\*\")[^\"\\]+"
        ),
        rf"\1{REMOVED}",
    ),
    # name=value, --name value, "name": "value"
    (re.compile(rf"(?i)((?<![a-z])[\w.-]*(?:{_WORDS})\\*[\"']?\s*=\s*\\*[\"']?)[^\s\"'\\,;&)}}\]]+"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)(--[\w.-]*(?:{_WORDS}|key)\s+)(?!-)[^\s]+"), rf"\1{REMOVED}"),
    (
        re.compile(
            rf"(?i)((?<![a-z])[\w.-]*(?:{_WORDS})\\*[\"']?\s*:\s*\\*[\"']?)"
            r"(?=[^\s\"'\\,;&)}\]]*[\d+/=_!$%^#@-])[^\s\"'\\,;&)}\]]{8,}"
        ),
        rf"\1{REMOVED}",
    ),
)
_FLAG = re.compile(rf"(?i)^--?[\w.-]*(?:{_WORDS}|key)$")
# Long, of letters and digits, and no path, address or word: what random keys look like.
_RANDOM = re.compile(r"^(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+_=-]{24,}$")


def redacted(evidence: Evidence) -> Evidence:
    """Return the evidence without secrets."""
    return Evidence(
        evidence.target,
        evidence.taken,
        {kind: [_cleaned(each) for each in found] for kind, found in evidence.objects.items()},
        {place: redact_text(text) for place, text in evidence.logs.items()},
        {kind: redact_text(why) for kind, why in evidence.unread.items()},
    )


def redact_text(text: str) -> str:
    """Return a text without what looks like a secret in it."""
    for pattern, instead in _TEXTS:
        text = pattern.sub(instead, text)
    return text


def redact(value: Any) -> Any:
    """Return plain data without what looks like a secret, by the names of keys and by the looks of values."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return _sequence(list(value))
    return value


def _cleaned(obj: Object) -> Object:
    found: Object = redact(obj)
    return found


def _mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    # An environment variable: its name decides about its value.
    if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
        named, said = str(value["name"]), str(value["value"])
        rest = {key: redact(item) for key, item in value.items() if key != "value"}
        secret = not named.startswith(_OUR_VARIABLES) and (_is_secret(named) or bool(_RANDOM.match(said)))
        return {**rest, "value": REMOVED if secret and said else redact_text(said)}
    cleaned: dict[str, Any] = {}
    for key, item in value.items():
        if key == "managedFields":
            continue
        if key in _COPIES or (isinstance(item, str | int) and not isinstance(item, bool) and _is_secret(str(key))):
            cleaned[key] = REMOVED if item else item
        elif key == "metadata" and isinstance(item, Mapping) and "diskSizeGb" in value:
            # Metadata of GKE's machines: start-up scripts and keys of people.
            cleaned[key] = {one: REMOVED for one in item}
        else:
            cleaned[key] = redact(item)
    return cleaned


def _sequence(items: list[Any]) -> list[Any]:
    cleaned: list[Any] = []
    flagged = False
    for item in items:
        # A flag and its value are two items of a command.
        hide = flagged and isinstance(item, str) and not item.startswith("-")
        cleaned.append(REMOVED if hide else redact(item))
        flagged = isinstance(item, str) and bool(_FLAG.match(item))
    return cleaned


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAMES.search(name)
