"""Serves the model.py of a Truss around the engine: business logic in Python, in the server's process.

docs/model-py.md explains it. The code of the model runs on an event loop and threads of its own
(:mod:`llgtrt.hooks.user_loop`); its requests come by the routes of :mod:`llgtrt.truss.routes`, which take the
place of the server's own.
"""

from .definition import Definition
from .engine import Engine
from .errors import ModelDefinitionError
from .loader import load_model_class
from .secrets import SecretNotFound, Secrets
from .start import RunningModel, start_model

__all__ = [
    "Definition",
    "Engine",
    "ModelDefinitionError",
    "RunningModel",
    "SecretNotFound",
    "Secrets",
    "load_model_class",
    "start_model",
]
