"""What an operator can add to the server in Python: the input processor, and a hook around generations.

An input processor is a class in a file of its own; everything that the file needs is imported from here::

    from llgtrt.hooks import InputError, InputProcessor, InputRequest, PreparedInput


    class MyProcessor(InputProcessor):
        def process(self, request: InputRequest) -> PreparedInput:
            prompt = self.render(request)
            return PreparedInput(tokens=self.tokenize(prompt), prompt=prompt.expanded)

docs/input-processor.md explains it. :mod:`llgtrt.hooks.requests` shows a hook, docs/hooks.md explains it.
Imports of this package: :mod:`llgtrt.config`, :mod:`llgtrt.engine` and :mod:`llgtrt.chat`.
"""

from .engines import load_engine_class, make_engine
from .errors import HookFailedError, HookTimeoutError, InputError, ProcessorFailedError
from .hook_loader import load_hook, start_hook
from .loader import load_processor_class
from .logits_processors import LogitsProcessors, ProcessorArgumentsError
from .pool import ProcessorPool
from .prepared import PreparedInput
from .processor import InputProcessor, InputRequest, ProcessorContext
from .requests import HookEnd, HookOutput, HookRequest, Refusal
from .runner import HookRunner
from .start import start_processor
from .tensor import Tensor
from .trial import try_input_processor

__all__ = [
    "HookEnd",
    "HookFailedError",
    "HookOutput",
    "HookRequest",
    "HookRunner",
    "HookTimeoutError",
    "InputError",
    "InputProcessor",
    "InputRequest",
    "LogitsProcessors",
    "PreparedInput",
    "ProcessorArgumentsError",
    "ProcessorContext",
    "ProcessorFailedError",
    "ProcessorPool",
    "Refusal",
    "Tensor",
    "load_engine_class",
    "load_hook",
    "load_processor_class",
    "make_engine",
    "start_hook",
    "start_processor",
    "try_input_processor",
]
