"""Chat messages to prompt text."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes

from llgtrt.config import ConfigError, Settings
from llgtrt.patient_json import json_of
from llgtrt.tools import ToolFormat, find_format
from llgtrt.tools.families import fallback

from .environment import RefusedError, template_environment
from .errors import ChatError
from .guard import Guard, remove_guards
from .messages import plain_messages
from .style import find_style, prints_role

logger = logging.getLogger(__name__)

MAX_PROMPT_CHARS = 32 * 1024 * 1024
"""A template that multiplies its input is stopped here."""

MAX_FURTHER_ROLES = 64
"""Roles beyond OpenAI's of which it is remembered whether the template prints them."""

CHATML = """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
"""Used where neither the operator nor the model has a template."""

SCHEMA_INSTRUCTION = "Answer with JSON that conforms to this JSON schema:\n"

DOCUMENTS_INSTRUCTION = "Answer with the help of these documents, each as one line of JSON:\n"

_END_MARK = "\ufdd1"
"""Put behind the content of a final message that is to be continued; the prompt ends where it is found."""

_RESERVED = frozenset(
    {
        "messages",
        "tools",
        "documents",
        "json_schema",
        "date_string",
        "add_generation_prompt",
        "continue_final_message",
        "raise_exception",
        "strftime_now",
    }
)


@dataclass(frozen=True)
class Prompt:
    """A rendered conversation."""

    text: str
    """For the tokenizer: control token names that users wrote are marked (see :mod:`llgtrt.chat.guard`)."""

    expanded: str
    """For people: the same without marks."""

    add_special: bool
    """Whether the tokenizer may put its BOS token in front: not if the template wrote one."""


class ChatTemplate:
    """A compiled chat template. It does not change, and is safe to use from several threads.

    Args:
        source: the template.
        name: where it comes from, for error messages.
        tokens: texts of named control tokens (``bos_token``, ``eos_token``, ...) that the template may print.
        special_tokens: the texts of all control tokens, which users cannot write.
        calls: how the model writes calls, for a template that shows none; ``None``: as the template says.
        allowed_kwargs: template variables that requests may set, beside those that the template reads.

    Raises:
        ConfigError: the template has a syntax error, or cannot render a plain question.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "chat template",
        tokens: Mapping[str, str | None] | None = None,
        special_tokens: Iterable[str] = (),
        allowed_kwargs: Iterable[str] = (),
        max_prompt_chars: int = MAX_PROMPT_CHARS,
        calls: ToolFormat | None = None,
    ) -> None:
        self.source = source
        self._calls = calls or find_format(source)
        environment = template_environment()
        try:
            syntax_tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"{name}:{error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise ConfigError(f"{name}: nested too deeply") from error
        self._tokens = {key: text for key, text in (tokens or {}).items() if text is not None}
        self._bos_token = self._tokens.get("bos_token")
        self._guard = Guard(special_tokens)
        # Before what follows, which makes one constant of a list of them.
        constants = frozenset(
            one.value for one in syntax_tree.find_all(jinja2.nodes.Const) if isinstance(one.value, str)
        )
        self.variables = frozenset(jinja2.meta.find_undeclared_variables(syntax_tree))
        allowed = self.variables.union(allowed_kwargs)
        own_date = _tests_for(syntax_tree, "date_string")
        reserved = _RESERVED - {"date_string"} if own_date else _RESERVED
        self._needs_date = "date_string" in self.variables and not own_date
        self._allowed_kwargs = allowed - reserved - self._tokens.keys() - environment.globals.keys()
        self._max_prompt_chars = max_prompt_chars
        self.shows_json_schema = "json_schema" in self.variables
        self.style = find_style(self._try, constants)
        self._further_roles: dict[str, bool] = {}
        try:
            plain = self.render([{"role": "user", "content": "Hello"}])
        except ChatError as error:
            raise ConfigError(f"{name}: fails on a plain user message: {error.message}") from error
        self.writes_bos = not plain.add_special

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        json_schema: Any = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt for a conversation. May take long for long conversations.

        Args:
            messages: as in the OpenAI API.
            tools: tool definitions for the template.
            documents: what the model is to answer from, with members such as ``title`` and ``text``. They go
                where the template puts them, else into the system message.
            json_schema: a schema that the answer will satisfy, to tell the model about. It goes where the
                template puts it, else into the system message.
            add_generation_prompt: end with the header of the answer, so that the model begins one.
            continue_final_message: leave the final assistant message open, so that the model goes on with it.
            template_kwargs: further template variables, if they are allowed.

        Raises:
            ChatError: the messages cannot be made into a prompt.
        """
        if continue_final_message and add_generation_prompt:
            raise ChatError(
                "continue_final_message and add_generation_prompt cannot both be true",
                "continue_final_message",
            )
        try:
            plain = plain_messages(messages, self._prints_role)
            if not self.style.tool_calls:
                plain = [_without_calls(message, self._calls) for message in plain]
            if tools and not self.style.tools:
                self._add_instruction(plain, fallback.instruction(tools, self._calls))
            if documents and not self.style.documents:
                self._add_instruction(plain, _listed(documents))
            if json_schema is not None and not self.shows_json_schema:
                self._add_schema(plain, json_schema)
            values: dict[str, Any] = {
                **self._kwargs(template_kwargs),
                "tools": tools or None,
                "documents": documents or None,
            }
            if json_schema is not None and self.shows_json_schema:
                values["json_schema"] = json_schema

            def rendered(protect: Callable[[Any], Any]) -> str:
                styled = [self._styled(message, protect) for message in plain]
                if continue_final_message:
                    self._open_final_message(styled)
                # Templates of Hugging Face models expect tools and documents to be defined always.
                context = {name: protect(value) for name, value in values.items()}
                return self._run(styled, {**context, "add_generation_prompt": add_generation_prompt})

            text = rendered(self._guard.protect)
            if self._guard.may_begin(plain) or self._guard.may_begin(values):
                wary = rendered(self._guard.protect_beginnings)
                if self._guard.count(text) > self._guard.count(wary):
                    # The template made a name out of what users wrote.
                    text = wary
        except RecursionError as error:
            raise ChatError("messages are nested too deeply") from error
        if continue_final_message:
            text = self._cut_final_message(text)
        return Prompt(
            text=text,
            expanded=remove_guards(text),
            add_special=not (self._bos_token and text.startswith(self._bos_token)),
        )

    def guard(self, text: str) -> str:
        """``text`` with the names of control tokens marked, so that the tokenizer keeps them as text."""
        marked: str = self._guard.protect(text)
        return marked

    def _run(self, messages: list[dict[str, Any]], context: Mapping[str, Any]) -> str:
        """Renders messages that are already in the form that the template wants."""
        variables = {**self._tokens, **context, "messages": messages}
        if self._needs_date:
            now = datetime.now(timezone.utc)
            variables["date_string"] = f"{now.day} {now:%B %Y}"
        pieces: list[str] = []
        left = self._max_prompt_chars
        try:
            for piece in self._template.generate(variables):
                left -= len(piece)
                if left < 0:
                    raise ChatError(f"the prompt is longer than {self._max_prompt_chars} characters")
                pieces.append(piece)
        except (ChatError, RecursionError):
            raise
        except RefusedError as error:
            raise ChatError(f"the chat template refused the messages: {error}") from error
        except Exception as error:
            # A template is a program: what it raises on messages it was not written for can be anything.
            raise ChatError(f"the chat template failed on the messages: {str(error)[:200]}") from error
        return "".join(pieces)

    def _try(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, Any]] | None = None,
    ) -> str | None:
        context = {"tools": tools, "documents": documents, "add_generation_prompt": True}
        try:
            return self._run(messages, context)
        except (ChatError, RecursionError):
            return None

    def _prints_role(self, role: str) -> bool:
        """Whether the template knows a role that OpenAI's API does not, such as ``ipython`` of Llama."""
        known = self._further_roles.get(role)
        if known is None:
            known = prints_role(self._try, self.style, role)
            if len(self._further_roles) < MAX_FURTHER_ROLES:
                self._further_roles[role] = known
        return known

    def _kwargs(self, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        for key in kwargs or {}:
            if key not in self._allowed_kwargs:
                allowed = ", ".join(sorted(self._allowed_kwargs)) or "none"
                raise ChatError(
                    f"chat_template_kwargs: {key[:40]!r} may not be set; allowed: {allowed}",
                    "chat_template_kwargs",
                )
        return dict(kwargs or {})

    def _add_schema(self, messages: list[dict[str, Any]], schema: Any) -> None:
        self._add_instruction(messages, SCHEMA_INSTRUCTION + json_of(schema))

    def _add_instruction(self, messages: list[dict[str, Any]], text: str) -> None:
        if self.style.system_role:
            first = messages[0]
            if first["role"] in ("system", "developer"):
                first["content"] = f"{first['content']}\n\n{text}" if first["content"] else text
            else:
                messages.insert(0, {"role": "system", "content": text})
            return
        for message in messages:
            if message["role"] == "user":
                message["content"] = f"{text}\n\n{message['content']}"
                return
        messages.append({"role": "user", "content": text})

    def _styled(self, message: Mapping[str, Any], protect: Callable[[Any], Any]) -> dict[str, Any]:
        """A message in the form that the template wants, its texts guarded."""
        styled: dict[str, Any] = {**protect(dict(message)), "role": message["role"]}
        if styled["role"] == "developer" and not self.style.developer_role:
            styled["role"] = "system"
        if styled["content"] is None and not self.style.null_content:
            styled["content"] = ""
        if self.style.content_parts and styled["content"] is not None:
            styled["content"] = [{"type": "text", "text": styled["content"]}]
        if self.style.text_arguments:
            for call in styled.get("tool_calls", ()):
                arguments = call["function"]["arguments"]
                call["function"]["arguments"] = json_of(arguments)
        return styled

    def _open_final_message(self, messages: list[dict[str, Any]]) -> None:
        final = messages[-1]
        if final["role"] != "assistant" or not final["content"]:
            raise ChatError(
                "continue_final_message needs a final assistant message with a content",
                "continue_final_message",
            )
        if self.style.content_parts:
            final["content"][-1]["text"] += _END_MARK
        else:
            final["content"] += _END_MARK

    def _cut_final_message(self, text: str) -> str:
        end = text.rfind(_END_MARK)
        if end < 0:
            raise ChatError(
                "the chat template does not print the final message, so it cannot be continued",
                "continue_final_message",
            )
        return text[:end]


def _tests_for(syntax_tree: jinja2.nodes.Template, name: str) -> bool:
    """Whether a template asks if a variable is defined: it has a value of its own for it then."""
    tests = syntax_tree.find_all(jinja2.nodes.Test)
    return any(
        test.name == "defined" and isinstance(test.node, jinja2.nodes.Name) and test.node.name == name
        for test in tests
    )


def _listed(documents: Sequence[Mapping[str, Any]]) -> str:
    """The documents for a template that shows none."""
    lines = "\n".join(json_of(document) for document in documents)
    return f"{DOCUMENTS_INSTRUCTION}<documents>\n{lines}\n</documents>"


def _without_calls(message: dict[str, Any], one: ToolFormat) -> dict[str, Any]:
    """A message for a template that shows neither calls nor their results."""
    if message["role"] == "tool":
        return {"role": "user", "content": fallback.result(message["content"])}
    calls = message.pop("tool_calls", None)
    if calls:
        texts = [message["content"]] if message["content"] else []
        functions = [call["function"] for call in calls]
        texts += [fallback.call(function["name"], function["arguments"], one) for function in functions]
        message["content"] = "\n".join(texts)
    return message


def load_chat_template(settings: Settings, model_info: Mapping[str, Any]) -> ChatTemplate:
    """The chat template of a server: the operator's, else the model's, else ChatML.

    Args:
        settings: the server's settings.
        model_info: what the engine knows of the model: ``chat_template``, ``bos_token``, ``eos_token`` and
            ``special_tokens``.

    Raises:
        ConfigError: the template cannot be used.
    """
    section = settings.config.tokenizer
    if settings.chat_template is not None:
        source, name = settings.chat_template, settings.chat_template_source or "chat template"
    elif model_info.get("chat_template"):
        source, name = model_info["chat_template"], "chat template of the model file"
    else:
        logger.warning("no chat template found, using ChatML; set one with --chat-template")
        source, name = CHATML, "default chat template"
    names = [option for option in type(section).model_fields if option.endswith("_token")]
    tokens = {option: getattr(section, option) for option in names if option != "add_bos_token"}
    for option in ("bos_token", "eos_token"):
        if option not in section.model_fields_set:
            tokens[option] = model_info.get(option)
    return ChatTemplate(
        source,
        name=name,
        tokens=tokens,
        special_tokens=model_info.get("special_tokens") or (),
        allowed_kwargs=settings.config.server.chat_template_kwargs,
        calls=find_format(source, settings.config.tools.parser),
    )
