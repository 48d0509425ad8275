"""Certificates that cannot be used are found before the model is loaded."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from llgtrt.config import ConfigError, ServerConfig, tls_context

DATA = Path(__file__).parents[2] / "data" / "tls"


def context(**files: str) -> ssl.SSLContext | None:
    options = {f"ssl_{name}": file for name, file in files.items()}
    return tls_context(ServerConfig.model_validate(options))


def test_plain_http() -> None:
    assert context() is None


def test_certificate_and_key_may_be_one_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes((DATA / "server.key").read_bytes() + (DATA / "server.crt").read_bytes())
    one = context(certfile=str(both))
    assert one is not None
    assert one.verify_mode == ssl.CERT_NONE
    assert one.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_clients_with_a_certificate() -> None:
    certificate, key = str(DATA / "server.crt"), str(DATA / "server.key")
    with_clients = context(certfile=certificate, keyfile=key, ca_certs=str(DATA / "client.crt"))
    assert with_clients is not None
    assert with_clients.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"keyfile": "server.key"}, "server.ssl_keyfile is set, but server.ssl_certfile is not"),
        ({"ca_certs": "server.crt"}, "server.ssl_ca_certs is set, but"),
        ({"certfile": "missing"}, "missing: No such file or directory (server.ssl_certfile"),
        ({"certfile": "server.crt"}, "no certificate and private key in PEM form"),
        ({"certfile": "server.crt", "keyfile": "client.key"}, "the key is of another certificate"),
        ({"certfile": "server.crt", "keyfile": "encrypted"}, "the key is encrypted"),
        ({"certfile": "server.crt", "keyfile": "server.key", "ca_certs": "empty"}, "(server.ssl_ca_certs)"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], message: str
) -> None:
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True)
    (tmp_path / "empty").write_text("")
    (tmp_path / "encrypted").write_text(ENCRYPTED)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        context(**files)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


ENCRYPTED = """-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHrMFYGCSqGSIb3DQEFDTBJMCgGCSqGSIb3DQEFDDAbBAgDZTRf5Try3wIBATAM
BggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBAgQQF9PTvfPvQhxD/QD9cKCz2gSBkJMA
qGxcnX2K7hgsJdWURqyhk9oMwXK1W2H57EpjFe6F9Xu/tIQeqmZCuy+M4kQQfV7Y
VKTgwKSqFoEmIHRUPRUgy1CawMc0rNgWeYdtIP+AxtIr+OD+KvvyaEv0//DB+tvX
e2yI9sEC0eQS4Z43kTC1GCZQom8PFpkSR5IG4FFkhgkxUXQ0z9a1tq7wKpv3kQ==
-----END ENCRYPTED PRIVATE KEY-----
"""
