"""The forms in which the APIs that are served here write an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from starlette.types import Scope

from llgtrt.serving import Failure

ERROR_FORMS = "error_forms"
"""In the application's state: :data:`ErrorForm` by the path that it holds for, with all that is below."""

ErrorForm: TypeAlias = Callable[[Failure], dict[str, Any]]
"""The body of an error in the form of an API."""


def triton_error(failure: Failure) -> dict[str, Any]:
    """Triton's form: the message alone."""
    return {"error": failure.message}


FORMS: dict[str, ErrorForm] = {"/v2": triton_error}
"""Those that every application has; all other paths have OpenAI's."""


def error_form(scope: Scope) -> ErrorForm:
    """The form of the errors of a request's route, also where none was found or before one is."""
    path: str = scope.get("path", "").removeprefix(scope.get("root_path", ""))
    return form_of_path(path, getattr(scope["app"].state, ERROR_FORMS, {}) if "app" in scope else {})


def form_of_path(path: str, own: dict[str, ErrorForm]) -> ErrorForm:
    """The form of the errors below a path; ``own`` are those of an application."""
    for prefix, form in (*FORMS.items(), *own.items()):
        if path == prefix or path.startswith(prefix + "/"):
            return form
    return Failure.openai


def error_schema(form: ErrorForm) -> dict[str, Any]:
    """The JSON schema of the bodies that a form makes."""
    return _schema(
        form(Failure(400, "message", "type", "param", "code")), form(Failure(400, "message", "type"))
    )


def _schema(full: Any, bare: Any) -> dict[str, Any]:
    """The schema of two values that differ in what may be null or missing."""
    if isinstance(full, dict):
        others = bare if isinstance(bare, dict) else {}
        members = {name: _schema(value, others.get(name, value)) for name, value in full.items()}
        return {"type": "object", "properties": members, "required": sorted(full.keys() & others.keys())}
    return {"type": ["string", "null"] if bare is None else "string"}
