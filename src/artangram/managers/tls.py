"""The certificate by which agents know their orchestrator, and the fingerprint they pin.

The certificate is made once, signs itself and stays in the state directory. Nothing but its
fingerprint says that it is the right one, so the fingerprint is checked before a token is sent.
"""

import hashlib
import os
import ssl
from asyncio import BaseTransport
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from artangram.core.errors import BadInput
from artangram.link import LinkRefused

CERTIFICATE, KEY = "agents.crt", "agents.key"
VALID_FOR = timedelta(days=3650)


def server_context(state_dir: Path) -> tuple[ssl.SSLContext, str]:
    """The orchestrator's side, and the fingerprint of its certificate. Makes it if need be."""
    certificate, key = state_dir / CERTIFICATE, state_dir / KEY
    if not certificate.exists() or not key.exists():
        _make(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return context, fingerprint(ssl.PEM_cert_to_DER_cert(certificate.read_text()))


def client_context() -> ssl.SSLContext:
    """The agent's side. `pinned` says whether the peer is the right one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint(der: bytes) -> str:
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def checked_fingerprint(text: str) -> str:
    """`text` as `fingerprint` writes it. `BadInput` if it is not one."""
    kind, _, digits = text.strip().lower().partition(":")
    digits = digits.replace(":", "")
    if kind != "sha256" or len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        fix = "copy it from what `artangram up` prints: sha256: and 64 digits"
        raise BadInput("fingerprint", f"{text!r} is not one", fix)
    return f"{kind}:{digits}"


def pinned(expected: str) -> Callable[[BaseTransport], None]:
    """Raises `LinkRefused` for a transport whose peer has another certificate."""

    def check(transport: BaseTransport) -> None:
        found = fingerprint(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
        if found != expected:
            raise LinkRefused(
                f"the orchestrator there has the fingerprint {found}, not {expected}; if it was "
                "set up anew, copy the new one from what `artangram up` prints"
            )

    return check


def _make(certificate: Path, key: Path) -> None:
    # Needs an extra.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "artangram orchestrator")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + VALID_FOR)
        .sign(secret, hashes.SHA256())
    )
    certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    plain = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write(key, secret.private_bytes(pem, form, plain))
    _write(certificate, made.public_bytes(pem))


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and only for its owner."""
    early = path.with_name(path.name + ".new")
    with open(early, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        os.fsync(file.fileno())
    os.replace(early, path)
