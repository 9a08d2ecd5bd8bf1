"""Takes secrets out of evidence, before it is written, printed or judged. Pure.

What is taken out is replaced by `[removed]`, so that it shows that there was something. Too much rather than too
little: no diagnosis needs a value that looks like a secret. Where people put what they like, and no rule looks, nothing
is judged by its looks but all is taken out: values of environment variables, arguments of containers, annotations of
others than Kubernetes, GKE and Everstep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from everstep.doctor.evidence import Evidence, Object

REMOVED = "[removed]"

_WORDS = (
    r"pass(?:word|wd|phrase)?|pwd|secrets?|tokens?|credentials?|creds?|cookie|bearer|auth(?:orization)?|signature|dockerconfigjson|"
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
# Whose annotations are known.
_KNOWN_DOMAINS = ("kubernetes.io", "k8s.io", "gke.io", "google.com", "everstep.dev")
_OUR_VARIABLES = "EVERSTEP_"
_OF_PEOPLE = ("data", "stringData", "binaryData")

_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    # One whose beginning was cut off.
    (re.compile(r"(?:[\w+/=]{20,}\s+)+-----END [A-Z ]*PRIVATE KEY-----"), REMOVED),
    (re.compile(r"(?i)\b((?:set-)?cookie:\s*)[^\n]+"), rf"\1{REMOVED}"),
    (
        re.compile(r"(https://hooks\.slack\.com/services/|https://discord(?:app)?\.com/api/webhooks/)\S+"),
        rf"\1{REMOVED}",
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
    # Whoever logs in by an address: user, password or both, in which there may be another @.
    (re.compile(r"(\w[\w+.-]*://)[^\s/\"']+@"), rf"\1{REMOVED}@"),
    (re.compile(r"(\s(?:-u|--user)[ =]\s*[^\s:]+:)\S+"), rf"\1{REMOVED}"),
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
    (
        re.compile(
            rf"(?i)(\\*\"value\\*\"\s*:\s*\\*\")[^\"\\]+(\\*\"\s*,\s*\\*\"name\\*\"\s*:\s*\\*\"[\w.-]*(?:{_WORDS}|key)\\*\")"
        ),
        rf"\1{REMOVED}\2",
    ),
    # The same as YAML.
    (re.compile(rf"(?i)(\bname:\s*[\"']?[\w.-]*(?:{_WORDS}|key)[\"']?\s*\n\s*value:\s*)\S[^\n]*"), rf"\1{REMOVED}"),
    # Whole texts in quotes: "name": "value", name='value'.
    (
        re.compile(rf"(?i)((?<![a-z])[\w.-]*(?:{_WORDS})\\*[\"']?\s*[:=]\s*\\*([\"']))(?:(?!\\*\2).)+"),
        rf"\1{REMOVED}",
    ),
    (re.compile(rf"(?i)(\b(?:using|with) (?:{_WORDS}) ['\"])[^'\"]+"), rf"\1{REMOVED}"),
    # A line of YAML, a header, a variable of a shell: one word is the value.
    (re.compile(rf"(?im)(^\s*(?:-\s+)?[\w.-]*(?:{_WORDS}|key-data)[\"']?:[ \t]*)\S+[ \t]*$"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)(\bx-[\w-]*(?:key|token|auth|secret)[\w-]*\s*:\s*)[^\s\"']+"), rf"\1{REMOVED}"),
    (
        re.compile(r"(\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDS?)\s*[:=]\s*)[^\s\"'\\]+"),
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
# Long, of letters and digits: what random keys look like. Hashes of checkpoints and images are known, and stay.
_RANDOM_WORD = re.compile(
    r"(?<![\w/.:-])(?!D?[0-9a-f]{64}(?:\.data|\b))(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9_]{32,}(?![\w/.-])"
)


def redacted(evidence: Evidence) -> Evidence:
    """Return the evidence without secrets."""
    return Evidence(
        evidence.target,
        evidence.taken,
        {kind: [_cleaned(each) for each in found] for kind, found in evidence.objects.items()},
        {place: _prose(text) for place, text in evidence.logs.items()},
        {kind: _prose(why) for kind, why in evidence.unread.items()},
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
    if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
        return _variable(value)
    cleaned: dict[str, Any] = {}
    for key, item in value.items():
        if key == "managedFields":
            continue
        if key == "annotations" and isinstance(item, Mapping):
            cleaned[key] = {one: _annotation(one, said) for one, said in item.items()}
        elif key in ("command", "args") and "image" in value and isinstance(item, list):
            # A container's: the program stays.
            cleaned[key] = [*item[: key == "command"], *([REMOVED] if item[key == "command" :] else [])]
        elif key in _OF_PEOPLE and value.get("kind") in ("Secret", "ConfigMap") and isinstance(item, Mapping):
            cleaned[key] = dict.fromkeys(item, REMOVED)
        elif key == "metadata" and isinstance(item, Mapping) and "diskSizeGb" in value:
            # Metadata of GKE's machines: start-up scripts and keys of people.
            cleaned[key] = dict.fromkeys(item, REMOVED)
        elif key == "message" and isinstance(item, str):
            cleaned[key] = _prose(item)
        else:
            cleaned[key] = _without(item) if _is_secret(str(key)) else redact(item)
    return cleaned


def _variable(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variable, or a header, by its name and value."""
    named, said = str(value["name"]), str(value["value"])
    rest = {key: redact(item) for key, item in value.items() if key != "value"}
    ours = named.startswith(_OUR_VARIABLES) and not _is_secret(named)
    return {**rest, "value": redact_text(said) if ours else REMOVED if said else ""}


def _annotation(key: str, said: Any) -> Any:
    domain = key.partition("/")[0]
    known = any(domain == each or domain.endswith(f".{each}") for each in _KNOWN_DOMAINS)
    if not known or key in _COPIES or _is_secret(key):
        return REMOVED if said else said
    return redact(said)


def _without(value: Any) -> Any:
    """Return what stands under a name of secrets: references to them stay, and no text."""
    if isinstance(value, Mapping):
        return {
            key: redact(item) if _HARMLESS_NAMES.search(str(key)) else _without(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(item) for item in value]
    return value if isinstance(value, bool) or not value else REMOVED


def _prose(text: str) -> str:
    """Return a log or a message, in which no long random word means anything to a rule."""
    return _RANDOM_WORD.sub(REMOVED, redact_text(text))


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
