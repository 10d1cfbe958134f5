"""The server's self-signed certificate: created once, pinned by boards."""

from __future__ import annotations

import datetime
import hashlib
import ssl
from pathlib import Path

from edgekit.host.common.files import atomic_write, locked, private_folder, read_file
from edgekit.host.common.optional import missing_package
from edgekit.host.errors import InputError


def certificate(path: Path) -> str:
    """SHA-256 of the certificate at `path`; creates the certificate and its key if missing."""
    private_folder(path.parent)
    with locked(path.with_suffix(".lock")):
        if not path.exists() or (path.is_file() and path.stat().st_size == 0):
            path.touch(mode=0o600)  # restricts access before the key is written
            atomic_write(path, _create_certificate())
    try:
        return hashlib.sha256(
            ssl.PEM_cert_to_DER_cert(_extract_certificate(read_file(path).decode()))
        ).hexdigest()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: expected the server's certificate and key, found: {error}; restore it from "
            "a backup, or remove it and enroll the boards again"
        ) from None


def server_context(path: Path) -> ssl.SSLContext:
    """TLS context of a server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise InputError(f"{path}: expected a certificate and its key, found: {error}") from None
    return context


def _extract_certificate(text: str) -> str:
    """Extracts the certificate, which follows the key."""
    return text[text.find("-----BEGIN CERTIFICATE-----") :]


def _create_certificate() -> bytes:
    """Creates a key and its certificate; boards ignore its dates."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise missing_package("cryptography", error) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "edgekit profile serve")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1970, 1, 1))
        .not_valid_after(datetime.datetime(9999, 12, 31))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)
