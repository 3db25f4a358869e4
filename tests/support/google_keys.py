"""A service account's key that the tests' token service accepts."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def key_file(file: Path, token_url: str) -> Path:
    """Google's library signs with it and requests a token from `token_url`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    told = {
        "type": "service_account",
        "client_email": "person@project-1.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        "token_uri": token_url,
        "project_id": "project-1",
    }
    file.write_text(json.dumps(told))
    file.chmod(0o600)
    return file
