"""What an operator can add to the server in Python: the input processor.

An input processor is a class in a file of its own; everything that the file needs is imported from here::

    from llgtrt.hooks import InputError, InputProcessor, InputRequest, PreparedInput


    class MyProcessor(InputProcessor):
        def process(self, request: InputRequest) -> PreparedInput:
            prompt = self.render(request)
            return PreparedInput(tokens=self.tokenize(prompt), prompt=prompt.expanded)

docs/input-processor.md explains it. Imports of this package: :mod:`llgtrt.config`, :mod:`llgtrt.engine` and
:mod:`llgtrt.chat`.
"""

from .errors import InputError, ProcessorFailedError
from .loader import load_processor_class
from .pool import ProcessorPool
from .prepared import PreparedInput
from .processor import InputProcessor, InputRequest, ProcessorContext
from .start import start_processor
from .tensor import Tensor
from .trial import try_input_processor

__all__ = [
    "InputError",
    "InputProcessor",
    "InputRequest",
    "PreparedInput",
    "ProcessorContext",
    "ProcessorFailedError",
    "ProcessorPool",
    "Tensor",
    "load_processor_class",
    "start_processor",
    "try_input_processor",
]
