"""Continue texts in Triton's form: the use case behind ``/v2/models/NAME/generate`` and ``infer``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_json

from llgtrt.engine import AsyncEngine, ChoiceDelta, Delta, Logits
from llgtrt.serving.beams import HARMLESS, MAX_BEAMS
from llgtrt.serving.completion import CompletionService
from llgtrt.serving.errors import Failure, ModelNotFoundError, RequestError, quote
from llgtrt.serving.generation import Generation, receipt_member
from llgtrt.serving.models import ServedModel
from llgtrt.serving.output import Output
from llgtrt.serving.protocol import CompletionRequest, Constraint
from llgtrt.serving.protocol.constraint import gbnf, json_schema, regex
from llgtrt.serving.protocol.triton import ASKED_BY, OUTPUTS, TritonRequest
from llgtrt.serving.triton_logits import LOGITS, logits_fields, number_list

VERSION = "1"
"""The only version of a model here."""

Shape: TypeAlias = Literal["generate", "generate_stream", "infer"]
"""Which route asks. ``infer`` gets each output as a list with an element per sequence, and ``shape``."""


class TritonService:
    """Starts completions for Triton's clients on one model."""

    def __init__(
        self, engine: AsyncEngine, model: ServedModel, completions: CompletionService, most_sequences: int
    ) -> None:
        self._engine = engine
        self._model = model
        self._completions = completions
        self.most_sequences = most_sequences

    def find(self, name: str, version: str | None) -> str:
        """The name to answer with.

        Raises:
            ModelNotFoundError: there is no such model or version.
        """
        if version not in (None, VERSION):
            raise ModelNotFoundError(f"{name} of version {version}", self._model.name)
        return self._model.resolve(name)

    async def start(
        self,
        name: str,
        version: str | None,
        request: TritonRequest,
        shape: Shape,
        outputs: list[str] | None,
        *,
        binary: bool = False,
    ) -> Generation:
        """Checks a request and hands it to the core.

        Args:
            name: the model's name in the path.
            version: its version in the path, if there is one.
            request: the inputs.
            shape: the form of the answer.
            outputs: the outputs that the answer is to hold; None: all that the inputs ask for.
            binary: logits come as bytes, not as JSON.

        Raises:
            RequestError: an input or an output is wrong.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        name = self.find(name, version)
        if request.stream and shape != "generate_stream":
            raise RequestError(f"stream: {shape} gives one answer; use generate_stream.", "stream")
        for output in outputs or ():
            if output not in OUTPUTS:
                raise RequestError(f"There is no output {quote(output)}.", "outputs")
        wanted = {one for one, asked in ASKED_BY.items() if getattr(request, asked)} | {"text_output"}
        if outputs:
            wanted = set(outputs)
        streaming = shape == "generate_stream" and request.stream is not False
        completion = self._completion(name, request, streaming, wanted)
        form = TritonOutput(name, request, shape, frozenset(wanted))
        extra = logits_fields(form.wanted, binary=binary)
        generation = await self._completions.start(completion, form, _constraint(request), extra=extra)
        generation.streaming = shape == "generate_stream"
        return generation

    def _completion(
        self, name: str, request: TritonRequest, streaming: bool, wanted: set[str]
    ) -> CompletionRequest:
        """The same request as OpenAI would write it."""
        for index, text in enumerate(request.text_input):
            if not text:
                raise RequestError(f"text_input[{index}] is empty.", "text_input")
        n, beams = request.n, request.beam_width or 1
        _check_beams(request)
        sequences = max(n, beams) * len(request.text_input)
        if sequences > self.most_sequences:
            factor = "num_return_sequences" if beams == 1 else "beam_width"
            raise RequestError(
                f"{len(request.text_input)} of text_input times {max(n, beams)} of {factor} are {sequences}; "
                f"this server allows at most {self.most_sequences} sequences.",
                "text_input" if n == 1 else "num_return_sequences",
            )
        least = request.min_length if request.min_length is not None else request.min_tokens
        if least is not None and request.max_tokens is not None and least > request.max_tokens:
            raise RequestError("min_length is greater than max_tokens.", "min_length")
        vocabulary = self._engine.model_info.vocab_size
        if request.end_id is not None and request.end_id >= vocabulary:
            raise RequestError(f"end_id is outside the vocabulary of {vocabulary}.", "end_id")
        lora = None if request.lora_task_id is None else str(request.lora_task_id)
        if lora is not None and lora not in self._model.adapters:
            raise RequestError(f"lora_task_id: no adapter is named {lora} here.", "lora_task_id")
        if lora is not None and self._model.adapter(name, None) not in (None, lora):
            raise RequestError("lora_task_id is another adapter than the model in the path.", "lora_task_id")
        seed = request.random_seed if request.random_seed is not None else request.seed
        completion = CompletionRequest(
            model=name,
            prompt=request.text_input,
            n=n,
            max_tokens=request.max_tokens,
            min_tokens=least,
            bad_words=request.bad_words or None,
            stop=request.stop_words,
            stop_token_ids=[request.end_id] if request.end_id is not None and request.end_id >= 0 else None,
            ignore_eos=request.end_id == -1,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            # TensorRT-LLM's defaults, whatever the model's files say.
            repetition_penalty=1.0 if request.repetition_penalty is None else request.repetition_penalty,
            min_p=0.0,
            seed=(seed or 0) % 2**63,
            logprobs=0 if wanted & {"cum_log_probs", "output_log_probs"} else None,
            lora_model=lora,
            stream=streaming,
            **_choosing(request),
            **_searching(request),
        )
        completion._body_bytes = request.body_bytes
        return completion


def _check_beams(request: TritonRequest) -> None:
    beams = request.beam_width or 1
    if beams == 1:
        return
    if beams > MAX_BEAMS:
        raise RequestError(
            f"beam_width: a search may have {MAX_BEAMS} beams at most, not {beams}.", "beam_width"
        )
    if request.n > beams:
        raise RequestError("num_return_sequences is more than beam_width.", "num_return_sequences")
    # The names that these have as fields of completions.
    for name in (*HARMLESS, "return_context_logits", "return_generation_logits"):
        value = getattr(request, name, None)
        if value and value not in HARMLESS.get(name, ()):
            raise RequestError(f"{name} cannot be combined with a beam_width above 1.", name)
    if request.stop_words and request.guided_decoding_guide_type is not None:
        raise RequestError(
            "stop_words cannot be combined with a beam_width above 1 and a guide.", "stop_words"
        )


def _searching(request: TritonRequest) -> dict[str, Any]:
    """What says how many beams there are, by TensorRT-LLM's rules."""
    if (request.beam_width or 1) == 1:
        return {}
    return {
        "use_beam_search": True,
        "best_of": request.beam_width,
        "length_penalty": request.length_penalty or 0.0,
        "early_stopping": request.early_stopping in (None, True, 1),
    }


def _choosing(request: TritonRequest) -> dict[str, Any]:
    """How tokens are chosen, by TensorRT-LLM's rules: without top_k and top_p the most likely one."""
    top_k, top_p = request.top_k or 0, request.top_p or 0.0
    if request.temperature == 0 or (top_k == 0 and top_p == 0):
        return {"temperature": 0.0}
    temperature = 1.0 if request.temperature is None else request.temperature
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p or 1.0}


def _constraint(request: TritonRequest) -> Constraint | None:
    kind, guide = request.guided_decoding_guide_type, request.guided_decoding_guide
    param = "guided_decoding_guide"
    if kind is None:
        if guide:
            raise RequestError("guided_decoding_guide needs guided_decoding_guide_type.", param)
        return None
    if kind == "json":
        if guide:
            raise RequestError("guided_decoding_guide: the type json has no guide; json_schema has.", param)
        return json_schema(True, "guided_decoding_guide_type")
    if guide is None:
        raise RequestError(f"The type {kind} needs guided_decoding_guide.", param)
    if kind == "json_schema":
        return json_schema(guide, param)
    return regex(guide, param) if kind == "regex" else gbnf(guide, param)


@dataclass
class TritonOutput(Output):
    """Writes the answer to one request.

    Attributes:
        wanted: names of the outputs that it holds.
        sums: the log-probabilities of each sequence so far, by its index.
        begun: the sequences of which something was sent.
    """

    model: str
    request: TritonRequest
    shape: Shape
    wanted: frozenset[str]
    sums: dict[int, float] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    def response(self, delta: Delta) -> list[bytes]:
        """The object of a complete answer."""
        return [to_json(self.columns(delta))]

    def columns(self, delta: Delta) -> dict[str, Any]:
        """The object of a complete answer; a value alone where there is one sequence, as Triton writes it."""
        choices = sorted(delta.choices, key=lambda one: one.index)
        columns: dict[str, list[Any]] = {name: [] for name in OUTPUTS if name in self.wanted - LOGITS}
        receipts = [receipt_member(choice).get("constraint") for choice in choices]
        for choice in choices:
            for name, value in self._outputs(choice).items():
                columns[name].append(value)
        if self.shape == "infer":
            n = self.request.n
            head = self._head()
            if any(receipts):
                # Beside the tensors the protocol has room for texts and numbers only.
                head["parameters"] = {"constraint": to_json(receipts).decode()}
            return {**head, "outputs": columns, "shape": [len(self.request.text_input), n]}
        if any(receipts):
            columns["constraint"] = receipts
        if len(choices) == 1:
            return {**self._head(), **self._place(0), **{name: one[0] for name, one in columns.items()}}
        places = [self._place(choice.index) for choice in choices]
        indices = {name: [place[name] for place in places] for name in ("batch_index", "sequence_index")}
        return {**self._head(), **indices, **columns}

    def encode(self, delta: Delta, last: bool) -> bytes:
        """An event for each sequence that has something new. There is no event that says that all is sent."""
        return b"".join(map(self.encode_choice, delta.choices))

    def encode_choice(self, choice: ChoiceDelta) -> bytes:
        """The event for what is new of one sequence; empty where there is nothing."""
        if not (choice.text or choice.token_count or choice.finish_reason):
            return b""
        data = {
            **self._head(),
            **self._place(choice.index),
            **self._outputs(choice),
            **receipt_member(choice),
        }
        return b"data: " + to_json(data) + b"\n\n"

    def pieces(self, delta: Delta, last: bool) -> Iterator[bytes] | None:
        """An answer or events with logits, row by row."""
        if not self.wanted & LOGITS:
            return None
        return self._event_pieces(delta) if self.shape == "generate_stream" else self._whole_pieces(delta)

    def _whole_pieces(self, delta: Delta) -> Iterator[bytes]:
        yield to_json(self.columns(delta))[:-1]
        alone = len(delta.choices) == 1
        for name, all_rows in self.logits(delta).items():
            yield b',"%b":%b' % (name.encode(), b"" if alone else b"[")
            for index, rows in enumerate(all_rows):
                if index > 0:
                    yield b","
                yield from number_list(rows)
            if not alone:
                yield b"]"
        yield b"}"

    def _event_pieces(self, delta: Delta) -> Iterator[bytes]:
        for choice in delta.choices:
            event = self.encode_choice(choice)
            if not event:
                continue
            yield event.removesuffix(b"}\n\n")
            for name in sorted(self.wanted & LOGITS):
                rows = getattr(choice, name)
                if rows is not None:
                    yield b',"%b":' % name.encode()
                    yield from number_list(rows)
            yield b"}\n\n"

    def logits(self, delta: Delta) -> dict[str, list[Logits | None]]:
        """The rows of each output of logits: per text those of the context, per sequence the others."""
        choices = sorted(delta.choices, key=lambda one: one.index)
        n = self.request.n
        found = {
            "context_logits": [one.context_logits for one in choices[::n]],
            "generation_logits": [one.generation_logits for one in choices],
        }
        return {name: rows for name, rows in found.items() if name in self.wanted}

    def failed(self, failure: Failure) -> bytes:
        """Triton's form of an error; the stream just ends."""
        return b"data: " + to_json({"error": failure.message}) + b"\n\n"

    def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = {"model_name": self.model, "model_version": VERSION}
        if self.request.id is not None:
            head["id"] = self.request.id
        return head

    def _place(self, index: int) -> dict[str, Any]:
        n = self.request.n
        return {"batch_index": index // n, "sequence_index": index % n}

    def _outputs(self, choice: ChoiceDelta) -> dict[str, Any]:
        """The outputs for what is new of one sequence, which is all of it where nothing is streamed."""
        text = choice.text
        if choice.index not in self.begun:
            self.begun.add(choice.index)
            if self.request.exclude_input_in_output is False:
                n = self.request.n
                text = self.request.text_input[choice.index // n] + text
        outputs: dict[str, Any] = {}
        if self.wanted & {"cum_log_probs", "output_log_probs"}:
            tokens = [] if choice.logprobs is None else from_json(choice.logprobs)["token_logprobs"]
            self.sums[choice.index] = math.fsum([self.sums.get(choice.index, 0.0), *tokens])
            outputs = {"cum_log_probs": self.sums[choice.index], "output_log_probs": tokens}
        outputs |= {
            "text_output": text,
            "finish_reason": choice.finish_reason,
            "num_output_tokens": choice.token_count,
        }
        return {name: outputs[name] for name in OUTPUTS if name in self.wanted - LOGITS}
