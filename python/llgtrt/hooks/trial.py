"""What ``--test-py`` does: load the input processor, run it on an example, say what came of it."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

from llgtrt.chat import load_chat_template
from llgtrt.config import ConfigError, Settings, native_config
from llgtrt.engine import AsyncEngine, LlgtrtError

from .errors import InputError, ProcessorFailedError
from .files import describe_failure
from .loader import load_processor_class
from .prepared import PreparedInput
from .processor import InputProcessor, InputRequest
from .start import start_processor

EXAMPLE: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
"""It has text only: every processor has to handle that."""

_SHOWN = 400
"""Numbers of a list that are printed."""


def try_input_processor(settings: Settings) -> str:
    """Runs the input processor on an example conversation, and gives what came of it for people to read.

    Raises:
        ConfigError: there is none, it cannot be used, or it fails on the example.
    """
    file = settings.input_processor
    if file is None:
        raise ConfigError(
            "no input processor: neither py.input_processor nor input_processor.py in the folder ENGINE"
        )
    kind = load_processor_class(file)
    if settings.tokenizer_path is not None:
        # The tokenizer is all that is needed, and the simulated engine loads nothing else.
        settings = settings.model_copy(update={"backend": "sim"})
    try:
        return asyncio.run(_try(settings, kind, file))
    except LlgtrtError as error:
        raise ConfigError(str(error)) from error


async def _try(settings: Settings, kind: type[InputProcessor], file: Path) -> str:
    engine = await AsyncEngine.load(native_config(settings))
    try:
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        pool = await start_processor(kind, file, settings, engine, template)
        prepared = await pool.process(InputRequest(messages=copy.deepcopy(EXAMPLE)))
        return _describe(prepared, engine)
    except InputError as error:
        raise ConfigError(f"{file}: refuses the example: {error.param}: {error.message}") from error
    except ProcessorFailedError as error:
        raise ConfigError(describe_failure(file, error)) from error
    finally:
        await engine.shutdown()


def _describe(prepared: PreparedInput, engine: AsyncEngine) -> str:
    prompt = prepared.prompt
    if prompt is None:
        vocab_size = engine.model_info.vocab_size
        prompt = engine.detokenize([token for token in prepared.tokens if token < vocab_size])
    lines = [
        f"messages: {json.dumps(EXAMPLE)}",
        f"prompt: {json.dumps(prompt, ensure_ascii=False)}",
        _numbers("tokens", list(prepared.tokens)),
    ]
    for name, value in prepared.extras().items():
        lines.append(_numbers(name, value) if isinstance(value, list) else f"{name}: {value}")
    return "\n".join(lines) + "\n"


def _numbers(name: str, values: list[int]) -> str:
    more = ", ..." if len(values) > _SHOWN else ""
    return f"{name} ({len(values)}): [{', '.join(map(str, values[:_SHOWN]))}{more}]"
