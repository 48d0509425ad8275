"""Check schemas without an engine: the use case behind ``llgtrt check-schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llgtrt.config import ConfigError, LlguidanceConfig
from llgtrt.engine import GrammarChecker, LlgtrtError, explain_schema
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.constraint import Residual
from llgtrt.serving.protocol.validate import inner_schema, instance_texts, schema_question


class SchemaChecker:
    """Reports on schemas under a server's limits. Safe to share between threads."""

    def __init__(self, config: LlguidanceConfig, tokenizer: Path | None, jobs: int) -> None:
        """Starts ``jobs`` compile threads. Without a tokenizer, tokens are single bytes.

        Raises:
            ConfigError: the tokenizer or the configuration is unusable.
        """
        slots = config.model_copy(
            update={"compile_slots": jobs, "compile_queue_size": max(jobs, config.compile_queue_size)}
        )
        path = None if tokenizer is None else str(tokenizer)
        try:
            self._checker = GrammarChecker(slots.model_dump_json(), path)
        except LlgtrtError as error:
            raise ConfigError(error.message) from error

    def check(self, schema: Any, instances: list[Any], residual: Residual | None) -> dict[str, Any]:
        """The report on a schema, or on OpenAI's object around one; see ``Engine.report``."""
        try:
            question = schema_question(schema, "", residual)
            text = self._checker.report(
                question.grammar,
                instances=instance_texts(instances),
                residual=question.residual,
                places=question.places,
            )
        except (RequestError, LlgtrtError) as error:
            return refused(error.message, error.param or "")
        except UnicodeEncodeError:
            return refused("a string is not valid Unicode: it holds half of a surrogate pair")
        report: dict[str, Any] = json.loads(text)
        return report


def explained(schema: Any, residual: Residual, standard: bool) -> tuple[bool, str]:
    """True and the stages of the schema (it may stand in OpenAI's object), or false and why it is refused."""
    try:
        text = json.dumps(inner_schema(schema), allow_nan=False)
        return True, explain_schema(text, residual=residual, standard=standard)
    except LlgtrtError as error:
        return False, f"refused: {error.param or 'the schema'}: {error.message}"
    except ValueError as error:
        return False, f"refused: {error}"


def refused(message: str, path: str = "", hint: str | None = None) -> dict[str, Any]:
    """The report on what cannot be looked at."""
    problem = {"path": path, "keyword": None, "message": message, "hint": hint}
    return {"ok": False, "errors": [problem], "rules": [], "residual": [], "instances": []}
