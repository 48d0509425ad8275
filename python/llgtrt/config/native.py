"""The configuration as the Rust core reads it."""

import json
from typing import Any

from .settings import Settings
from .trtllm import library_folders, plugin_file

TOKENIZER_OPTIONS = ("n_vocab_override", "bos_token", "eos_token", "add_bos_token")
"""Options of the ``tokenizer`` section that the core uses; the others concern the chat template."""


def native_config(settings: Settings, kv_block_size: int | None = None) -> str:
    """The JSON text that crosses to Rust once, at start-up.

    Args:
        kv_block_size: tokens of a block of the KV events, where the engine has any; None: as the
            ``kv_events`` section says, and an engine without is refused.
    """
    config = settings.config
    tokenizer = config.tokenizer.model_dump(include=set(TOKENIZER_OPTIONS))
    # A bos_token that was set to null means "none", but null also stands for "not set".
    bos_removed = config.tokenizer.bos_token is None and "bos_token" in config.tokenizer.model_fields_set
    if bos_removed and config.tokenizer.add_bos_token is None:
        tokenizer["add_bos_token"] = False
    plugin = plugin_file(config.trtllm)
    trtllm = config.trtllm.model_dump()
    trtllm["plugin_path"] = None if plugin is None else str(plugin)
    sections: dict[str, Any] = {
        "backend": settings.backend,
        "model_path": None if settings.model_path is None else str(settings.model_path),
        "tokenizer_path": None if settings.tokenizer_path is None else str(settings.tokenizer_path),
        "runtime": config.runtime.model_dump(),
        "tokenizer": {option: tokenizer[option] for option in TOKENIZER_OPTIONS},
        "llguidance": config.llguidance.model_dump(),
        "llamacpp": config.llamacpp.model_dump(),
        "sim": config.sim.model_dump(),
        "embedding": config.embedding.model_dump(),
        "trtllm": trtllm,
        "lora_root": None if settings.lora_root is None else str(settings.lora_root),
    }
    required = kv_block_size is None
    if required and config.kv_events.endpoint is not None:
        kv_block_size = config.kv_events.block_size
    if kv_block_size is not None:
        sections["kv_events"] = {"block_size": kv_block_size, "required": required}
    if settings.backend == "trtllm":
        sections["library_folders"] = [str(folder) for folder in library_folders()]
    return json.dumps(sections, ensure_ascii=False)
