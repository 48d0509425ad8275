"""From a class and the settings of a server to a processor with its threads."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from llgtrt.chat import ChatTemplate
from llgtrt.config import ConfigError, Settings
from llgtrt.engine import AsyncEngine

from .files import describe_failure
from .pool import ProcessorPool
from .processor import InputProcessor, ProcessorContext

logger = logging.getLogger("llgtrt.hooks")


async def start_processor(
    kind: type[InputProcessor], file: Path, settings: Settings, engine: AsyncEngine, template: ChatTemplate
) -> ProcessorPool:
    """The processor of a server, made on another thread: many load a model.

    Raises:
        ConfigError: its constructor fails.
    """
    context = _context(settings, engine, template)
    processor = await asyncio.to_thread(_make, kind, file, context)
    logger.info("input processor %s of %s", kind.__name__, file)
    return ProcessorPool(processor, settings.config.py.threads, engine.model_info.vocab_size)


def _context(settings: Settings, engine: AsyncEngine, template: ChatTemplate) -> ProcessorContext:
    section, folder, info = settings.config.py, settings.model_folder, engine.model_info
    visual = None if folder is None else folder / "visual_engine"
    return ProcessorContext(
        engine_dir=folder,
        hf_model_dir=folder if section.hf_model_dir is None else Path(section.hf_model_dir),
        visual_engine_dir=visual if section.visual_engine_dir is None else Path(section.visual_engine_dir),
        arguments=section.arguments,
        tokenizer_path=settings.tokenizer_path,
        vocab_size=info.vocab_size,
        max_sequence_tokens=info.max_sequence_tokens,
        bos_token=info.bos_token,
        eos_token=info.eos_token,
        template=template,
        encode=engine.encode,
        decode=engine.detokenize,
    )


def _make(kind: type[InputProcessor], file: Path, context: ProcessorContext) -> InputProcessor:
    try:
        return kind(context)
    except (Exception, SystemExit) as error:
        raise ConfigError(describe_failure(file, error)) from error
