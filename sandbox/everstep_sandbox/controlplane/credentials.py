"""Keys, certificates and tokens of a control plane on loopback: made once per directory, kept over restarts.

Certificates are made anew at a start shortly before they expire, with a new authority.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from everstep_sandbox.kubernetes.files import write_atomically
from everstep_sandbox.kubernetes.kubeconfig import kubeconfig

_DAYS_VALID = 365
# A control plane that is started must not be met by the end of its certificate.
_DAYS_LEFT = 30

ADMIN = "everstep-admin"
USERS = {
    ADMIN: ("system:masters",),
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
    "jobset-controller": (),
    "nobody": (),
}
"""Users that can be told apart by their bearer tokens, with their groups; `nobody` has no rights."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files in one directory; see `ensure`."""

    directory: Path

    @classmethod
    def of(cls, sandbox: Path) -> Credentials:
        """Those of the control plane in a sandbox's directory."""
        return cls(sandbox / "controlplane" / "credentials")

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.directory / "tls.crt"

    @property
    def key(self) -> Path:
        return self.directory / "tls.key"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"

    def ensure(self) -> None:
        """Makes what is missing or expires: an authority, a serving certificate for 127.0.0.1, a key, users' tokens."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.certificate.exists() or _days_left(self.certificate) < _DAYS_LEFT:
            self._make_certificates()
        if not self.service_account_key.exists():
            write_atomically(self.service_account_key, _private_text(_new_key()), mode=0o600)
        if not self.tokens.exists():
            lines = [f'{secrets.token_hex(16)},{user},{user},"{",".join(groups)}"\n' for user, groups in USERS.items()]
            write_atomically(self.tokens, "".join(lines), mode=0o600)

    def write_kubeconfigs(self, server: str) -> None:
        """Writes a kubeconfig for each user."""
        authority = self.authority.read_text()
        for line in self.tokens.read_text().splitlines():
            token, user = line.split(",")[:2]
            write_atomically(self.kubeconfig(user), kubeconfig(server, token, authority), mode=0o600)

    def token(self, user: str = ADMIN) -> str:
        """The bearer token of a user."""
        loaded = yaml.safe_load(self.kubeconfig(user).read_text())
        return str(loaded["users"][0]["user"]["token"])

    def _make_certificates(self) -> None:
        authority_key = _new_key()
        authority_name = _name("everstep sandbox authority")
        authority = (
            _builder(authority_name, authority_name, authority_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        key = _new_key()
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(_name("127.0.0.1"), authority_name, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False)
            .sign(authority_key, hashes.SHA256())
        )
        write_atomically(self.authority, _public_text(authority))
        write_atomically(self.key, _private_text(key), mode=0o600)
        write_atomically(self.certificate, _public_text(certificate))


def _days_left(certificate: Path) -> float:
    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return (end - datetime.datetime.now(datetime.UTC)) / datetime.timedelta(days=1)


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS_VALID))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _public_text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private_text(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
