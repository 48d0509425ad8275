"""What the command does once its line is parsed: print something, or serve."""

import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace

from llgtrt import logs
from llgtrt.config import (
    FLAGS,
    Arguments,
    Config,
    ConfigError,
    backend_choice,
    chat_template,
    environment_variable,
    find_engine,
    find_repository,
    load_config,
    load_settings,
    locate_model,
    print_config,
    tokenizer_template,
    truss_base,
)
from llgtrt.config.gguf import read_text_value

logger = logging.getLogger("llgtrt")

OTHER_VARIABLES = frozenset({"LLGTRT_SHARED", "LLGTRT_TRTLLM_PLUGIN", "LLGTRT_DISAGGREGATION_KEY"})
"""Variables that are no option: what tests use, and what the option of another command is called."""

_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)|^LLGTRT_(TEST|UPDATE)")


def perform(arguments: Arguments) -> int:
    """Does what the arguments ask for and gives the exit code.

    Raises:
        ConfigError: the configuration or the model cannot be used.
    """
    set_up_logging(arguments)
    arguments = find_engine(arguments)
    if arguments.print_config or arguments.print_complete_config:
        _write(print_config(_printed_config(arguments)))
        return 0
    if (arguments.print_chat_template or arguments.test_py) and find_repository(arguments) is not None:
        raise ConfigError("--print-chat-template and --test-py need a single model: name one as ENGINE")
    if arguments.print_chat_template:
        _write(_any_chat_template(arguments))
        return 0
    if arguments.test_py:
        return _test_py(arguments)
    return _serve(arguments)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like options and are none, perhaps misspelt.

    Kubernetes sets variables for the services of a namespace, such as ``LLGTRT_SERVICE_HOST`` and
    ``LLGTRT_PORT_80_TCP_ADDR`` for one named llgtrt: those are not meant.
    """
    known = {environment_variable(name) for name in FLAGS} | OTHER_VARIABLES
    return sorted(
        name
        for name in environment
        if name.startswith("LLGTRT_") and name not in known and not _OF_KUBERNETES.search(name)
    )


def set_up_logging(arguments: Arguments) -> None:
    """Sends log lines to standard error; standard output is for what --print-... prints."""
    level = logging.DEBUG if arguments.debug else logging.WARNING if arguments.quiet else logging.INFO
    logs.set_up(level)


def _serve(arguments: Arguments) -> int:
    level = logging.getLogger().level
    form: logs.LogFormat = "text"
    logs.hold(level)
    try:
        for name in unknown_variables(os.environ):
            logger.warning("%s is set, but there is no such option", name)
        repository = find_repository(arguments)
        settings = load_settings(arguments) if repository is None else repository.shared
        form = settings.config.server.log_format
        levels = logs.Levels.parse(settings.log_level)
    finally:
        logs.set_up(level, form)
    levels.apply()
    if settings.lora_root is not None and settings.backend != "trtllm":
        logger.warning("--lora-root is ignored: LoRA comes with the TensorRT-LLM engine")
    for file in settings.config_files:
        logger.info("configuration file %s", file)
    # The server and the core are loaded only now, so that everything before answers at once.
    from llgtrt.app.process import run

    return run(settings, repository)


def _test_py(arguments: Arguments) -> int:
    settings = load_settings(arguments)
    from llgtrt.hooks import try_input_processor

    _write(try_input_processor(settings))
    return 0


def _printed_config(arguments: Arguments) -> Config:
    # A key from the command line or the environment is a secret that does not belong in a file.
    complete = arguments.print_complete_config
    config, files = load_config(
        replace(arguments, api_key=()), with_tokenizer=complete, base=truss_base(arguments)
    )
    for file in files:
        logger.info("configuration file %s", file)
    if not complete:
        return config
    template = _chat_template_or_none(arguments, config)
    if template is None:
        return config
    tokenizer = config.tokenizer.model_copy(update={"chat_template": template})
    return config.model_copy(update={"tokenizer": tokenizer})


def _any_chat_template(arguments: Arguments) -> str:
    config, _ = load_config(arguments)
    template = _chat_template_or_none(arguments, config)
    if template is None:
        raise ConfigError("no chat template found: neither in files nor in the model")
    return template


def _chat_template_or_none(arguments: Arguments, config: Config) -> str | None:
    for template, source in (chat_template(arguments, config), tokenizer_template(arguments)):
        if template is not None:
            logger.info("chat template from %s", source)
            return template
    return _template_of_model(arguments)


def _template_of_model(arguments: Arguments) -> str | None:
    try:
        location = locate_model(arguments.engine, backend_choice(arguments))
    except ConfigError:
        # Printing needs no model that can run.
        return None
    if location.backend != "llamacpp" or location.model_path is None:
        return None
    template = read_text_value(location.model_path, "tokenizer.chat_template")
    if template is not None:
        logger.info("chat template from %s", location.model_path)
    return template


def _write(text: str) -> None:
    # The exact text in UTF-8, whatever the locale: it is meant for a file.
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
