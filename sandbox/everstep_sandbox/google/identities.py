"""Service accounts with key files, and the tokens by which callers are known, here and at Cloud Storage.

A key file `DIR/identities/<name>.json` is what Google's libraries read; its `token_uri` is this server. A token is
signed with a secret in `DIR/identities/secret`, so that every server of the sandbox can tell whose it is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

from everstep_sandbox.google import errors
from everstep_sandbox.kubernetes.files import write_atomically

Object = dict[str, Any]

TOKEN_SECONDS = 3600
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SKEW_SECONDS = 300


class Identities:
    """The identities of one sandbox."""

    def __init__(self, sandbox: Path, project: str) -> None:
        self._directory = sandbox / "identities"
        self._project = project

    def email(self, name: str) -> str:
        return f"{name}@{self._project}.iam.gserviceaccount.com"

    def make(self, name: str, token_uri: str) -> Path:
        """A service account with a key file, kept when it is there. Raises GoogleError 400 for a name that is none."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        if not re.fullmatch(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])", name):
            raise errors.invalid(f"The service account id {name!r} is not valid: 6 to 30 of a-z, 0-9 and '-'.")
        path = self._directory / f"{name}.json"
        known = json.loads(path.read_text()) if path.exists() else None
        if known is not None and known["token_uri"] == token_uri:
            return path
        if known is None:
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            known = {
                "type": "service_account",
                "project_id": self._project,
                "private_key_id": secrets.token_hex(20),
                "private_key": pem.decode(),
                "client_email": self.email(name),
                "client_id": str(secrets.randbelow(10**21)),
            }
        write_atomically(path, json.dumps({**known, "token_uri": token_uri}, indent=1), mode=0o600)
        return path

    def exchange(self, form: dict[str, str]) -> Object:
        """`POST /token`: a signed assertion for an access token. Raises GoogleError for one that proves nothing."""
        if form.get("grant_type") != _GRANT:
            raise errors.invalid(f"unsupported_grant_type: expected {_GRANT}")
        claims = self._verified(form.get("assertion", ""))
        token = self.token(claims["iss"])
        answer: Object = {"expires_in": TOKEN_SECONDS - 1, "token_type": "Bearer"}
        if "target_audience" in claims:
            return {**answer, "id_token": token}
        return {**answer, "access_token": token}

    def token(self, identity: str, seconds: float = TOKEN_SECONDS) -> str:
        """A token of an identity: an email, or a workload's principal."""
        payload = _encoded(json.dumps({"sub": identity, "exp": time.time() + seconds}).encode())
        return f"ya29.{payload}.{self._signature(payload)}"

    def caller(self, authorization: str) -> str:
        """Whose token an Authorization header carries; "" without one: the owner. Raises GoogleError 401."""
        if not authorization:
            return ""
        scheme, _, token = authorization.partition(" ")
        _, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        if scheme.lower() == "bearer" and hmac.compare_digest(signature, self._signature(payload)):
            claims = json.loads(_decoded(payload))
            if claims["exp"] > time.time():
                return str(claims["sub"])
        raise errors.GoogleError(
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other "
            "valid authentication credential.",
        )

    def _verified(self, assertion: str) -> Object:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        refused = errors.invalid("invalid_grant: Invalid JWT Signature.")
        try:
            signed, _, signature = assertion.rpartition(".")
            claims: Object = json.loads(_decoded(signed.partition(".")[2]))
            name = str(claims["iss"]).partition("@")[0]
            key_file = json.loads((self._directory / f"{Path(name).name}.json").read_text())
            private = serialization.load_pem_private_key(key_file["private_key"].encode(), None)
            if not isinstance(private, rsa.RSAPrivateKey) or key_file["client_email"] != claims["iss"]:
                raise refused
            private.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (ValueError, KeyError, TypeError, OSError, InvalidSignature):
            raise refused from None
        if not claims.get("exp", 0) > time.time() or claims.get("iat", 0) > time.time() + _SKEW_SECONDS:
            raise errors.invalid("invalid_grant: Invalid JWT: Token must be a short-lived token (60 minutes).")
        return claims

    def _signature(self, payload: str) -> str:
        return hmac.new(self._secret(), payload.encode(), hashlib.sha256).hexdigest()

    def _secret(self) -> bytes:
        path = self._directory / "secret"
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".secret.{os.getpid()}")
            aside.write_text(secrets.token_hex(32))
            aside.chmod(0o600)
            try:
                # Of two servers that start at the same time one's secret stays.
                os.link(aside, path)
            except FileExistsError:
                pass
            finally:
                aside.unlink()
        return path.read_bytes()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
