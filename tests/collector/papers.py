"""Certificates for tests, made by openssl for two days."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make certificates")


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)


def make_papers(folder: Path) -> Path:
    """An authority, a server's and a client's certificate of it, and a client's of another authority."""
    for name in ("authority", "stranger"):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
        openssl(folder, "req", "-x509", *key, "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name, signer in (("server", "authority"), ("client", "authority"), ("foreign", "stranger")):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
        openssl(folder, "req", *key, "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", f"{signer}.pem", "-CAkey", f"{signer}.key", "-CAcreateserial", "-days", "2")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem", "-extfile", "names")
    return folder
