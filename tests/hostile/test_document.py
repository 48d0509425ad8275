"""The OpenAPI document: valid, and what a generator of requests makes of it never breaks the server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from support.hostile.figures import record
from support.hostile.form import ENVIRONMENT
from support.hostile.watch import watched
from support.server import ServerProcess, clean_environment

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = 100
"""Requests per route and phase."""


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    errors = [
        f"{list(error.absolute_path)}: {error.message}"
        for error in OpenAPIV31SpecValidator(document).iter_errors()
    ]
    assert not errors


def test_a_broken_document_is_noticed(document: dict[str, Any]) -> None:
    broken = {**document, "paths": {"/v1/models/{name}": {"get": {"responses": {"200": {}}}}}}
    assert list(OpenAPIV31SpecValidator(broken).iter_errors())


@pytest.mark.full_form
@pytest.mark.timeout(1800)
def test_generated_requests(attacked: ServerProcess, tmp_path: Path) -> None:
    """Right ones and wrong ones; statuses, content types and bodies must be those that the document says."""
    command = [
        str(ENVIRONMENT / "bin" / "schemathesis"),
        "run",
        f"{attacked.base_url}/openapi.json",
        "--mode=all",
        f"--checks={CHECKS}",
        f"--max-examples={EXAMPLES}",
        "--seed=1",
        "--request-timeout=60",
        "--no-color",
        "--generation-database=none",
    ]
    with watched(attacked, "generated requests"):
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=1700,
            env=clean_environment(),
            cwd=tmp_path,
            check=False,
        )
    lines = ran.stdout.splitlines()
    record("generated requests", next((line.strip() for line in lines if "generated" in line), "none"))
    assert ran.returncode == 0, "\n".join([*lines[-200:], ran.stderr])
