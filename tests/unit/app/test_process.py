"""What the process says of itself at its start."""

from __future__ import annotations

import pytest

from llgtrt.api.listen import bind
from llgtrt.app.process import _warn_of_open_port
from llgtrt.config import Config


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "api_key": "k"}, False),
        ({"host": "127.0.0.1"}, False),
    ],
)
def test_a_port_for_everybody_without_a_key_is_warned_of(
    options: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Config.model_validate({"server": {**options, "port": 0}}).server
    listeners = bind(server)
    _warn_of_open_port(server, listeners)
    assert ("every machine that reaches this one may use the server" in caplog.text) is warned
    for listener in listeners:
        listener.close()
