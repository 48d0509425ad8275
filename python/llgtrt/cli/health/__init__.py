"""What ``llgtrt doctor`` looks at. Each check gives findings and raises nothing for what it finds."""

from .finding import Finding, State
from .model import check_model
from .system import check_system
from .trtllm import check_trtllm

__all__ = ["Finding", "State", "check_model", "check_system", "check_trtllm"]
