"""From llama.cpp's fields to a completion of this server."""

from __future__ import annotations

from typing import Any

from llgtrt.engine import ModelInfo
from llgtrt.serving.apis.llamacpp.request import InfillRequest, LlamaCompletionRequest
from llgtrt.serving.apis.shared import given_fields
from llgtrt.serving.errors import RequestError
from llgtrt.serving.fill_in import fill_in_marks
from llgtrt.serving.protocol import CompletionRequest
from llgtrt.serving.tokens import TokenWork

FILE_MARKS = ("<|file_sep|>", "<file_sep>")
REPOSITORY_MARKS = ("<|repo_name|>", "<repo_name>", "<reponame>")
"""Control tokens before a file and before all of them, of models that know several files."""

SNIPPET = "\n\n--- snippet ---\n\n"
"""Before a text of another file, for the other models."""


MAX_TEXTS = 256
"""Texts within prompts that are partly tokens: each takes a thread its time."""


def completion(request: LlamaCompletionRequest, prompt: Any) -> CompletionRequest:
    """The same request as OpenAI would write it, for a prompt that :func:`prompts_of` made.

    Raises:
        RequestError: it asks for several answers to a prompt.
    """
    if request.n not in (None, 1):
        raise RequestError("n: this route gives one answer; use /v1/completions.", "n")
    asked = request.n_predict if request.n_predict is not None else request.max_tokens
    fields: dict[str, Any] = {
        "prompt": prompt,
        "n": 1,
        "n_predict": None,
        # Whoever does not say gets an answer of any length, as from llama.cpp.
        "max_tokens": -1 if asked is None else asked,
        # Nothing is generated then: the prompt is only computed, for the requests that follow.
        "echo": asked == 0 or None,
        # A stream always has them, as from llama.cpp.
        "return_token_ids": request.return_tokens or request.stream,
    }
    common = given_fields(request)
    one = CompletionRequest.model_construct(**{**common, **fields})
    one._body_bytes = request.body_bytes
    return one


def infill(request: InfillRequest, info: ModelInfo) -> InfillRequest:
    """The request with the prompt that its texts make, in the model's own tokens.

    Raises:
        RequestError: the model has no tokens to fill in a text, or the prompt is not a text.
    """
    marks = fill_in_marks(info)
    if marks is None:
        raise RequestError(
            "This model has no tokens to fill in a text; models made for code usually do.", "input_prefix"
        )
    if not isinstance(request.prompt, str):
        raise RequestError("prompt must be a text here.", "prompt")
    before, behind, middle = marks
    text = f"{before}{request.input_prefix}{behind}{request.input_suffix}{middle}{request.prompt}"
    return request.model_copy(update={"prompt": _extra(request, info) + text})


def _extra(request: InfillRequest, info: ModelInfo) -> str:
    """Texts of other files, as the model knows them."""
    if not request.input_extra:
        return ""
    known = set(info.special_tokens)
    file_mark = next((mark for mark in FILE_MARKS if mark in known), None)
    if file_mark is None:
        return "".join(SNIPPET + one.text for one in request.input_extra)
    repository = next((f"{mark}project\n" for mark in REPOSITORY_MARKS if mark in known), "")
    files = "".join(f"{file_mark}{one.filename or 'file'}\n{one.text}" for one in request.input_extra)
    return f"{repository}{files}{file_mark}file\n"


async def prompts_of(prompt: Any, tokens: TokenWork) -> Any:
    """The prompt, or a list of them, of texts only or of tokens only where it may be both.

    Raises:
        RequestError: it is neither text nor tokens, or too long.
        OverloadedError: too many texts wait.
    """
    if not isinstance(prompt, list) or all(map(_is_token, prompt)):
        return prompt
    if any(map(_is_token, prompt)):
        return await _tokens_of(prompt, tokens, "prompt")
    if all(isinstance(one, str) for one in prompt):
        return prompt
    if len(prompt) > MAX_TEXTS:
        raise RequestError(f"prompt may hold at most {MAX_TEXTS} prompts.", "prompt")
    return [
        await _tokens_of([one] if isinstance(one, str) else one, tokens, f"prompt[{index}]")
        for index, one in enumerate(prompt)
    ]


async def _tokens_of(parts: Any, tokens: TokenWork, param: str) -> list[int]:
    """The tokens of a prompt that is written as tokens and texts."""
    if not isinstance(parts, list):
        raise RequestError(f"{param} must be a text or an array of token ids and texts.", param)
    if sum(isinstance(part, str) for part in parts) > MAX_TEXTS:
        raise RequestError(f"{param} may hold at most {MAX_TEXTS} texts.", param)
    found: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            found += await tokens.encode(part, number == 0, param)
        elif _is_token(part):
            found.append(part)
        else:
            raise RequestError(f"{param}[{number}] must be a token id or a text.", f"{param}[{number}]")
    return found


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
