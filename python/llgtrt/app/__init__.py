"""The composition root: loads the models, opens the port, and ends the process in good order."""

from llgtrt.app.process import run, trtllm_plugin_sources
from llgtrt.app.services import build_services

__all__ = ["build_services", "run", "trtllm_plugin_sources"]
