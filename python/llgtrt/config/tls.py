"""The certificate that the server shows, and whose certificates it asks for."""

import ssl

from .errors import ConfigError
from .server import ServerConfig


def tls_context(server: ServerConfig) -> ssl.SSLContext | None:
    """What HTTPS is served with; ``None`` for plain HTTP.

    Raises:
        ConfigError: a file is missing or wrong, the key is of another certificate, or half of it is not set.
    """
    if server.ssl_certfile is None:
        for option in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(server, option) is not None:
                raise ConfigError(f"server.{option} is set, but server.ssl_certfile is not")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # An encrypted key would be asked for on the terminal.
    try:
        context.load_cert_chain(server.ssl_certfile, server.ssl_keyfile, password=_no_password)
    except (OSError, ValueError) as error:
        files = server.ssl_certfile + (f", {server.ssl_keyfile}" if server.ssl_keyfile is not None else "")
        raise ConfigError(f"{files}: {_reason(error)} (server.ssl_certfile, server.ssl_keyfile)") from error
    if server.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(server.ssl_ca_certs)
        except OSError as error:
            raise ConfigError(f"{server.ssl_ca_certs}: {_reason(error)} (server.ssl_ca_certs)") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted: it has to be without a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (
            "the key is of another certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else ("no certificate and private key in PEM form")
        )
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
