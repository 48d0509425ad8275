"""Configuration: models of every option, files, the command line's flags and the search for the model.

Imports nothing else of this package.
"""

from .arguments import FLAGS, Arguments, Flag, environment_variable
from .disaggregation import DisaggregationConfig
from .disaggregation_key import KEY_VARIABLE, disaggregation_key
from .engine import Backend, BackendChoice, ModelLocation, locate_model
from .errors import ConfigError
from .gguf import read_values as gguf_values
from .keys import ApiKey
from .kv_events import KvEventsConfig
from .llamacpp import LlamaCppConfig
from .llguidance import LimitsConfig, LlguidanceConfig
from .metrics import MetricNames, MetricsConfig
from .models import ModelEntry
from .native import native_config
from .printing import print_config
from .py import PyConfig
from .repository import Repository, find_repository
from .root import Config
from .runtime import RuntimeConfig
from .server import ANY_NAME, ServerConfig
from .settings import (
    Settings,
    backend_choice,
    chat_template,
    load_config,
    load_settings,
    tokenizer_template,
    truss_base,
)
from .sim import SimConfig, SimFault
from .tls import tls_context
from .tokenizer import TokenizerConfig
from .trtllm import TrtllmConfig
from .truss import Truss, find_engine, is_truss, read_truss

__all__ = [
    "ANY_NAME",
    "FLAGS",
    "KEY_VARIABLE",
    "ApiKey",
    "Arguments",
    "Backend",
    "BackendChoice",
    "Config",
    "ConfigError",
    "DisaggregationConfig",
    "Flag",
    "KvEventsConfig",
    "LimitsConfig",
    "LlamaCppConfig",
    "LlguidanceConfig",
    "MetricNames",
    "MetricsConfig",
    "ModelEntry",
    "ModelLocation",
    "PyConfig",
    "Repository",
    "RuntimeConfig",
    "ServerConfig",
    "Settings",
    "SimConfig",
    "SimFault",
    "TokenizerConfig",
    "TrtllmConfig",
    "Truss",
    "backend_choice",
    "chat_template",
    "disaggregation_key",
    "environment_variable",
    "find_engine",
    "find_repository",
    "gguf_values",
    "is_truss",
    "load_config",
    "load_settings",
    "locate_model",
    "native_config",
    "print_config",
    "read_truss",
    "tls_context",
    "tokenizer_template",
    "truss_base",
]
