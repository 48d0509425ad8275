"""Which tools a chat request lets the model call: ``tools`` or, in older clients, ``functions``."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llgtrt.serving.caller import CALLER
from llgtrt.serving.errors import RequestError, printable, quote
from llgtrt.serving.protocol.chat import ChatRequest
from llgtrt.serving.protocol.tools import MAX_TOOLS, ChatTool, FunctionDefinition
from llgtrt.tools import Tool

logger = logging.getLogger("llgtrt.requests")

MOST_NAMED = 16
"""Types of ignored tools that are named, of one request and in the log."""

_warned: set[str] = set()

_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
"""Names that every call format can write: a superset of OpenAI's."""


@dataclass(frozen=True)
class ToolUse:
    """Tools of a request.

    Attributes:
        shown: the definitions, for the chat template; empty where the model may not call any.
        callable: the tools that may be called.
        required: at least one must be.
        parallel: several may be.
        legacy: the request has ``functions``, and its answer is to have ``function_call``.
        param: the field that errors name which concern them all.
    """

    shown: tuple[dict[str, Any], ...]
    callable: tuple[Tool, ...]
    required: bool
    parallel: bool
    legacy: bool
    param: str


def resolve_tools(request: ChatRequest) -> ToolUse | None:
    """The tools of a request, or ``None``.

    Raises:
        RequestError: they are malformed, or the choice names one that is not there.
    """
    if request.functions:
        if request.tools:
            raise RequestError("functions is the older name of tools: give one of them.", "functions")
        return _legacy(request, request.functions)
    if request.function_call not in (None, "none", "auto"):
        raise RequestError("function_call needs functions.", "function_call")
    ignored = _ignored(request.tools or ())
    if len(ignored) == len(request.tools or ()):
        if request.tool_choice not in (None, "none", "auto"):
            _refuse_ignored(request.tool_choice, ignored)
            raise RequestError("tool_choice needs tools.", "tool_choice")
        return None
    given = [(index, tool) for index, tool in enumerate(request.tools or ()) if tool.type == "function"]
    tools = _tools([(index, _function(tool, index)) for index, tool in given], "tools", "function.")
    names = [tool.name for tool in tools]
    _refuse_ignored(request.tool_choice, ignored)
    chosen, required, single = _choice(request.tool_choice, names)
    shown = tuple(
        {
            **tool.model_dump(exclude_unset=True, exclude={"function"}),
            "function": _function(tool, index).model_dump(exclude_unset=True, exclude={"strict"}),
        }
        for index, tool in given
    )
    return ToolUse(
        shown=shown if chosen else (),
        callable=tuple(tool for tool in tools if tool.name in chosen),
        required=required,
        parallel=request.parallel_tool_calls is not False and not single,
        legacy=False,
        param="tools",
    )


def _legacy(request: ChatRequest, functions: list[FunctionDefinition]) -> ToolUse:
    tools = _tools(list(enumerate(functions)), "functions", "")
    choice = request.function_call
    chosen: set[str] = {tool.name for tool in tools}
    required = False
    if choice == "none":
        chosen = set()
    elif isinstance(choice, dict):
        chosen = {_known(choice.get("name"), chosen, "function_call.name")}
        required = True
    elif choice not in (None, "auto"):
        raise RequestError("function_call must be 'none', 'auto' or an object with a name.", "function_call")
    shown = tuple(
        {"type": "function", "function": one.model_dump(exclude_unset=True, exclude={"strict"})}
        for one in functions
    )
    return ToolUse(
        shown=shown if chosen else (),
        callable=tuple(tool for tool in tools if tool.name in chosen),
        required=required,
        parallel=False,
        legacy=True,
        param="functions",
    )


def _ignored(tools: Sequence[ChatTool]) -> list[str]:
    """The types of tools that are not functions, of which client and log are told."""
    ignored = [tool.type for tool in tools if tool.type != "function"]
    if ignored:
        types = sorted({printable(kind) for kind in ignored})[:MOST_NAMED]
        CALLER.get().note_ignored_tools(types)
        new = [kind for kind in types if kind not in _warned]
        if new and len(_warned) < MOST_NAMED:
            _warned.update(new)
            logger.warning(
                "tools of the types %s are ignored: only functions are called here (said once)",
                ", ".join(new),
            )
    return ignored


def _refuse_ignored(choice: Any, ignored: list[str]) -> None:
    """A tool that must be called cannot be one that the model does not get."""
    kind = choice.get("type") if isinstance(choice, dict) else None
    if isinstance(kind, str) and kind in ignored:
        raise RequestError(
            f"tool_choice: tools of the type {quote(kind)} are ignored here; only functions can be chosen.",
            "tool_choice",
        )


def _function(tool: ChatTool, index: int) -> FunctionDefinition:
    if tool.function is None:
        at = f"tools[{index}].function"
        raise RequestError(f"{at}: this field is required.", at)
    return tool.function


def _tools(functions: list[tuple[int, FunctionDefinition]], param: str, member: str) -> tuple[Tool, ...]:
    if len(functions) > MAX_TOOLS:
        raise RequestError(f"{param} may hold at most {MAX_TOOLS} tools.", param)
    tools = []
    names: set[str] = set()
    for index, function in functions:
        at = f"{param}[{index}].{member}"
        if function.name in names:
            raise RequestError(f"{at}name: two tools have the same name.", f"{at}name")
        if not _NAME.fullmatch(function.name):
            raise RequestError(f"{at}name: a name consists of letters, digits and _ . : / -", f"{at}name")
        names.add(function.name)
        tools.append(Tool(function.name, _object_schema(function, f"{at}parameters"), f"{at}parameters"))
    return tuple(tools)


def _object_schema(function: FunctionDefinition, param: str) -> dict[str, Any]:
    """The schema of the arguments, which are always an object."""
    schema = function.parameters
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    kind = schema.get("type")
    if kind is None:
        return schema if "$ref" in schema else {**schema, "type": "object"}
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        return {**schema, "type": "object"}
    raise RequestError(f"{param}.type: arguments are an object, so it must be 'object'.", f"{param}.type")


def _choice(choice: Any, names: list[str]) -> tuple[set[str], bool, bool]:
    """Names that may be called, whether one must be, and whether only one call is allowed."""
    if choice is None or choice == "auto":
        return set(names), False, False
    if choice == "none":
        return set(), False, False
    if choice == "required":
        return set(names), True, False
    if isinstance(choice, dict):
        kind = choice.get("type")
        if kind == "function":
            function = choice.get("function")
            # The Responses API has the name beside the type; clients mix the two up.
            name = function.get("name") if isinstance(function, dict) else choice.get("name")
            return {_known(name, names, "tool_choice.function.name")}, True, True
        if kind == "allowed_tools":
            return _allowed(choice.get("allowed_tools"), names)
    raise RequestError(
        "tool_choice must be 'none', 'auto', 'required', or an object of type 'function' or 'allowed_tools'.",
        "tool_choice",
    )


def _allowed(allowed: Any, names: list[str]) -> tuple[set[str], bool, bool]:
    at = "tool_choice.allowed_tools"
    if not isinstance(allowed, dict):
        raise RequestError(f"{at} must be an object.", at)
    mode, tools = allowed.get("mode", "auto"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise RequestError(f"{at}.mode must be 'auto' or 'required'.", f"{at}.mode")
    if not isinstance(tools, list) or not tools:
        raise RequestError(f"{at}.tools must be an array of at least one tool.", f"{at}.tools")
    chosen = set()
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        chosen.add(_known(name, names, f"{at}.tools[{index}].function.name"))
    return chosen, mode == "required", False


def _known(name: Any, names: Any, param: str) -> str:
    if not isinstance(name, str):
        raise RequestError(f"{param} must be the name of a tool.", param)
    if name not in names:
        raise RequestError(f"{param}: there is no tool {quote(name)}.", param)
    return name
