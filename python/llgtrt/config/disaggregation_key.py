"""The key of the section ``disaggregation``."""

import os
from pathlib import Path

from .disaggregation import DisaggregationConfig
from .errors import ConfigError
from .files import read_text

KEY_VARIABLE = "LLGTRT_DISAGGREGATION_KEY"
LEAST_KEY_BYTES = 16


def disaggregation_key(section: DisaggregationConfig) -> bytes | None:
    """The key of a section; ``None`` where nothing is divided.

    Raises:
        ConfigError: there is none, it is too short, or the file cannot be read. The message holds no key.
    """
    if section.role is None:
        return None
    if section.key_file is not None:
        text, where = read_text(Path(section.key_file)), section.key_file
    else:
        text, where = os.environ.get(KEY_VARIABLE, ""), f"${KEY_VARIABLE}"
        if not text.strip():
            raise ConfigError(f"disaggregation.role needs a key: disaggregation.key_file or {where}")
    key = text.strip().encode()
    if len(key) < LEAST_KEY_BYTES:
        raise ConfigError(f"{where}: the key has fewer than {LEAST_KEY_BYTES} bytes")
    return key
