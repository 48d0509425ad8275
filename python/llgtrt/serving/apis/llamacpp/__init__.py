"""Routes of llama.cpp's server: ``/completion``, ``/infill``, ``/apply-template``, ``/props`` and more."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from llgtrt.patient_json import text_json
from llgtrt.serving.apis.api import Api, GenerationRoute, ObjectRoute
from llgtrt.serving.apis.llamacpp.encode import LlamaOutput
from llgtrt.serving.apis.llamacpp.request import InfillRequest, LlamaCompletionRequest
from llgtrt.serving.apis.llamacpp.translate import completion, infill, prompts_of
from llgtrt.serving.generation import Generation
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.protocol import ChatRequest
from llgtrt.serving.registry import Models, ModelServices

SETTINGS = (
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "ignore_eos",
    "stream",
)
"""What ``generation_settings`` repeats of a request."""


class LlamaService:
    """llama.cpp's use cases, over those of this server."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def complete(self, request: LlamaCompletionRequest) -> Generation:
        """Continues a text.

        Raises:
            RequestError: a field is wrong.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        return await self._start(self._models.resolve(request.model), request)

    async def infill(self, request: InfillRequest) -> Generation:
        """Writes what stands between two texts; raises what :meth:`complete` raises."""
        one = self._models.resolve(request.model)
        whole = await in_proportion(request.body_bytes, infill, request, one.engine.model_info)
        return await self._start(one, whole)

    async def apply_template(self, request: ChatRequest) -> bytes:
        """The prompt of a conversation as JSON.

        Raises:
            RequestError: a field is wrong.
        """
        one = self._models.resolve(request.model)
        text = await one.chat.prompt_text(request)
        return b'{"prompt":%b}' % await in_proportion(len(text), text_json, text)

    async def input_tokens(self, request: ChatRequest) -> bytes:
        """The number of tokens of a conversation's prompt as JSON.

        Raises:
            RequestError: a field is wrong.
            OverloadedError: too many texts wait.
        """
        tokens = await self._models.resolve(request.model).chat.prompt_tokens(request)
        return to_json({"object": "response.input_tokens", "input_tokens": len(tokens)})

    async def props(self, request: dict[str, str]) -> bytes:
        """What llama.cpp's clients want to know of a server.

        Raises:
            RequestError: the model is not served.
        """
        one = self._models.resolve(request.get("model"))
        info = one.engine.model_info
        return to_json(
            {
                "default_generation_settings": {"n_ctx": one.model.max_sequence_tokens, "params": {}},
                "total_slots": info.max_batch_size,
                "model_alias": one.model.name,
                "model_path": one.model.name,
                "chat_template": one.chat.template.source,
                "bos_token": info.bos_token or "",
                "eos_token": info.eos_token or "",
                "modalities": {"vision": False, "audio": False},
                "build_info": "llgtrt",
            }
        )

    async def _start(self, one: ModelServices, request: LlamaCompletionRequest) -> Generation:
        prompt = await prompts_of(request.prompt, one.tokens)
        asked = await in_proportion(request.body_bytes, completion, request, prompt)
        settings: dict[str, Any] = {
            name: value for name in SETTINGS if (value := getattr(request, name)) is not None
        }
        output = LlamaOutput(
            model=one.model.resolve(request.model),
            prompt=asked.prompt,
            settings={**settings, "n_predict": asked.max_tokens, "n_ctx": one.model.max_sequence_tokens},
            with_tokens=bool(request.return_tokens or request.stream),
            with_text=asked.max_tokens != 0,
            fields=request.response_fields,
        )
        generation = await one.completions.start(asked, output)
        output.stream = generation.stream
        return generation


def llamacpp_api(models: Models) -> Api:
    """The API over each model."""
    service = LlamaService(models)
    return Api(
        name="llama.cpp",
        routes=(
            GenerationRoute(
                "/completion",
                "Continue a text (llama.cpp)",
                "The text, why it ended, counts and timings; streamed as server-sent events without [DONE].",
                LlamaCompletionRequest,
                service.complete,
            ),
            GenerationRoute(
                "/infill",
                "Write what stands between two texts (llama.cpp)",
                "As /completion.",
                InfillRequest,
                service.infill,
            ),
            ObjectRoute(
                "POST",
                "/apply-template",
                "The prompt of a conversation (llama.cpp)",
                "The text that the model would be given.",
                service.apply_template,
                ChatRequest,
            ),
            ObjectRoute(
                "POST",
                "/v1/chat/completions/input_tokens",
                "Count the tokens of a conversation's prompt (llama.cpp)",
                "Their number.",
                service.input_tokens,
                ChatRequest,
                other_paths=("/chat/completions/input_tokens",),
            ),
            ObjectRoute(
                "GET",
                "/props",
                "Describe the server (llama.cpp)",
                "The context, the number of slots, the chat template.",
                service.props,
                query=("model",),
            ),
        ),
    )
