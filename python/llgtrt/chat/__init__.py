"""Chat messages to prompts: checks, templates and the guard of control tokens.

Imports nothing else of this package but :mod:`llgtrt.config` and :mod:`llgtrt.tools`.
"""

from .errors import ChatError
from .guard import GUARD, Guard, guard
from .messages import ROLES
from .style import TemplateStyle
from .template import CHATML, ChatTemplate, Prompt, load_chat_template

__all__ = [
    "CHATML",
    "GUARD",
    "ROLES",
    "ChatError",
    "ChatTemplate",
    "Guard",
    "Prompt",
    "TemplateStyle",
    "guard",
    "load_chat_template",
]
