"""Tools and thinking: the grammar that holds an answer to a model family's formats, and its parser.

Imports nothing else of this package but :mod:`llgtrt.config`.
"""

from llgtrt.tools.arguments import Part, UnsupportedSchemaError
from llgtrt.tools.events import CallArguments, CallBegun, CallEnded, Event, Reasoning, Text
from llgtrt.tools.format import ToolFormat
from llgtrt.tools.grammar import AnswerGrammar, answer_grammar
from llgtrt.tools.markup import ControlTokens, Markup
from llgtrt.tools.parser import AnswerParser, parse_answer
from llgtrt.tools.plan import Answer, AnswerPlan, Thinking, Tool
from llgtrt.tools.reasoning import ReasoningFormat, find_reasoning
from llgtrt.tools.registry import find_format

__all__ = [
    "Answer",
    "AnswerGrammar",
    "AnswerParser",
    "AnswerPlan",
    "CallArguments",
    "CallBegun",
    "CallEnded",
    "ControlTokens",
    "Event",
    "Markup",
    "Part",
    "Reasoning",
    "ReasoningFormat",
    "Text",
    "Thinking",
    "Tool",
    "ToolFormat",
    "UnsupportedSchemaError",
    "answer_grammar",
    "find_format",
    "find_reasoning",
    "parse_answer",
]
