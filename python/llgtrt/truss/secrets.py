"""The secrets of a Truss, looked up when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

MOUNT = Path("/secrets")
"""Where Kubernetes and Truss mount secrets, a file each."""

ENVIRONMENT_PREFIX = "TRUSS_SECRET_"


class SecretNotFound(Exception):  # noqa: N818 (Truss's name: models may look for it)
    """A secret is not in config.yaml, or has no value."""


class Secrets(Mapping[str, str]):
    """Reads ``secrets[name]``: the value in config.yaml, or the variable ``TRUSS_SECRET_<name>``, or the file
    ``/secrets/<name>``; the last of them that exists.

    Args:
        names: ``secrets`` of config.yaml: names with their default value, or null.
        mount: folder of the files.
    """

    def __init__(self, names: Mapping[str, Any], mount: Path = MOUNT) -> None:
        self._names = dict(names)
        self._mount = mount

    def __getitem__(self, name: str) -> str:
        """A secret.

        Raises:
            SecretNotFound: config.yaml does not name it, or it has no value.
        """
        value = self._find(name) if name in self._names else None
        if not value:
            raise SecretNotFound(
                f"Secret {name!r} not found: name it in the 'secrets' section of config.yaml, and give it a "
                f"value by the variable {ENVIRONMENT_PREFIX}{name} or the file {self._mount / str(name)}."
            )
        return value

    def __iter__(self) -> Iterator[str]:
        """Not possible: secrets are looked up one by one."""
        _refuse_iteration()

    def __len__(self) -> int:
        """How many config.yaml names."""
        return len(self._names)

    def __repr__(self) -> str:
        """The names, never a value."""
        return f"Secrets({sorted(self._names)})"

    def _find(self, name: str) -> str | None:
        value = self._names[name]
        value = os.environ.get(ENVIRONMENT_PREFIX + name, None if value is None else str(value))
        file = self._mount / name
        return file.read_text() if file.is_file() else value


def _refuse_iteration() -> NoReturn:
    raise NotImplementedError("Secrets are meant for lookup and can't be iterated on")
