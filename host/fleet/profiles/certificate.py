"""The server's self-signed certificate: created once, pinned by boards."""

from __future__ import annotations

import datetime
import hashlib
import ssl
from pathlib import Path

from edgekit.device.runtime.agent.push import server_name
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


def replace_certificate(path: Path) -> str:
    """Makes another certificate; the one before is presented to those who do not ask for the new
    one by its name. Returns its SHA-256."""
    certificate(path)
    with locked(path.with_suffix(".lock")):
        atomic_write(_before(path), read_file(path))
        atomic_write(path, _create_certificate())
    return certificate(path)


def server_context(path: Path) -> ssl.SSLContext:
    """TLS context of a server with that certificate, and with the one before it if there is."""
    context = _context_of(path)
    if not _before(path).exists():
        return context
    older, name = _context_of(_before(path)), server_name(certificate(path))

    def choose(connection: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        if asked == name:
            connection.context = context

    older.sni_callback = choose
    return older


def _before(path: Path) -> Path:
    return path.with_name(f"{path.stem}-before{path.suffix}")


def _context_of(path: Path) -> ssl.SSLContext:
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
