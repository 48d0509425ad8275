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
    own: dict[str, ErrorForm] = getattr(scope["app"].state, ERROR_FORMS, {}) if "app" in scope else {}
    for prefix, form in (*FORMS.items(), *own.items()):
        if path == prefix or path.startswith(prefix + "/"):
            return form
    return Failure.openai
