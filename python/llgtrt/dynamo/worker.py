"""The worker: one request of Dynamo's frontend, from its tokens to its chunks.

Knows Dynamo only by the shape of its requests and contexts, so that it can be tested without.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from llgtrt.dynamo.answer import AnswerWriter, TokenTexts
from llgtrt.dynamo.constraint import guided_constraint
from llgtrt.dynamo.egress import Egress, EgressClosedError, Outgoing
from llgtrt.dynamo.forward_pass import LiveRequest, pass_figures, request_figures
from llgtrt.dynamo.request import Asked, read_request
from llgtrt.engine import (
    AsyncEngine,
    Delta,
    GenerateRequest,
    GrammarSpec,
    LlgtrtError,
    Permit,
    Stream,
    StreamCancelledError,
)
from llgtrt.serving import AnswerFormats, TokenLimits
from llgtrt.serving.answers import plan_grammar, renamed
from llgtrt.serving.core_request import CoreRequest, core_request
from llgtrt.serving.errors import RequestError
from llgtrt.serving.offload import in_proportion

TAIL = 64
"""Tokens at the end of a prompt among which the beginning or the end of thinking is looked for."""
BYTES_PER_TOKEN = 8
"""How much work a token id of a request is, against a byte of a JSON body."""


class Context(Protocol):
    """What the worker uses of Dynamo's context of a request."""

    def id(self) -> str:
        """The request's id."""

    def is_stopped(self) -> bool:
        """Whether nobody waits for the answer any more."""

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        """Done when nobody waits any more."""


class Sender(Protocol):
    """Dynamo's sink for the chunks of a request."""

    def send(self, chunk: dict[str, Any]) -> None:
        """Sends a chunk; blocks while too many wait for their reader.

        Raises:
            RuntimeError: there is no reader any more.
        """


CANCELLED: dict[str, Any] = {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
"""The chunk that ends the answer to a client that has left."""


async def _next(plan: _Plan, stream: Stream) -> Delta:
    """What happened since the last delta, if it was no error."""
    delta = await stream.next()
    assert isinstance(delta, Delta)
    if delta.error is not None:
        raise plan.grammar.explain(delta.error)
    return delta


def _unchanged(error: Exception) -> Exception:
    return error


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What constrains an answer.

    Attributes:
        param: the member that errors in the grammar name, unless ``explain`` finds it.
        marked: thinking comes before the answer, and its tags have to be shown.
    """

    spec: GrammarSpec | None = None
    param: str | None = None
    explain: Callable[[Exception], Exception] = _unchanged
    marked: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the core is asked for, before it has a place in the queue."""

    asked: Asked
    core: CoreRequest
    adapter: str | None
    grammar: _Grammar


class Worker:
    """Answers requests with one engine. Runs on the event loop.

    Attributes:
        requests: how many are being answered.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        formats: AnswerFormats,
        limits: TokenLimits,
        *,
        end_tokens: tuple[int, ...] = (),
        raised: Callable[[Exception], BaseException] = _unchanged,
    ) -> None:
        """A worker without a runtime around it.

        Args:
            engine: what generates.
            formats: thinking tags and control tokens of the model.
            limits: how much requests may ask for.
            end_tokens: the tokens that end answers, as the frontend knows them.
            raised: makes of an error what the frontend understands.
        """
        self._engine = engine
        self._formats = formats
        self._limits = limits
        self._end_tokens = end_tokens
        self._raised = raised
        self._texts = TokenTexts(engine.detokenize)
        self._egress = Egress()
        self._live: dict[LiveRequest, None] = {}
        self.requests = 0

    def generate(
        self, request: Mapping[str, Any], context: Context, response_sender: Sender | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks of an answer.

        Args:
            request: Dynamo's, preprocessed.
            context: its context.
            response_sender: takes the chunks, and none is yielded. Dynamo gives one to whoever has this
                argument, but not with its own health checks.

        Raises:
            Exception: what ``raised`` makes of a :class:`RequestError` or of one of the core's errors.
        """
        if response_sender is None:
            return self._yielded(request, context)
        return self._pushed(request, context, response_sender)

    def close(self) -> None:
        """Ends the thread that sends, once nothing is generated."""
        self._egress.close()

    def forward_passes(self) -> list[dict[str, float]]:
        """What the engine did since the last call and has to do, for ``FpmDirectPublisher.publish``.

        One for each pass, the oldest first; while requests run and no pass has ended, one without a duration.
        """
        now = request_figures(self._live, self._engine.model_info.max_batch_size)
        passes = [pass_figures(one, now) for one in self._engine.take_forward_passes()]
        return passes or [now] * bool(self._live)

    async def _yielded(self, request: Mapping[str, Any], context: Context) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._running(request, context) as (plan, stream, writer, _stopped):
                while not stream.finished:
                    for chunk in writer.chunks(await _next(plan, stream)):
                        yield chunk
        except StreamCancelledError:
            yield CANCELLED

    async def _pushed(
        self, request: Mapping[str, Any], context: Context, sender: Sender
    ) -> AsyncIterator[dict[str, Any]]:
        async with self._running(request, context) as (plan, stream, writer, stopped):
            send = sender.send

            def send_chunks(delta: Delta) -> None:
                for chunk in writer.chunks(delta):
                    send(chunk)

            answer = Outgoing(self._egress, send_chunks)
            stopped.add_done_callback(lambda _done: answer.abandon())
            stream.pipe_deltas(answer.offer)
            try:
                while not stream.finished:
                    try:
                        delta = await _next(plan, stream)
                    finally:
                        # What came before an error, too.
                        await answer.sent()
                    answer.offer(delta)
                await answer.sent()
            except (EgressClosedError, StreamCancelledError):
                # Whoever would read it has gone.
                return
            finally:
                answer.close()
        # The runtime wants a generator.
        nothing: tuple[dict[str, Any], ...] = ()
        for chunk in nothing:
            yield chunk

    @asynccontextmanager
    async def _running(
        self, request: Mapping[str, Any], context: Context
    ) -> AsyncIterator[tuple[_Plan, Stream, AnswerWriter, asyncio.Future[bool]]]:
        """A request under way, and what is done when nobody waits for it any more."""
        self.requests += 1
        stream = stopped = live = None
        try:
            plan, stream = await self._start(request, context)
            writer = AnswerWriter(None if plan.asked.logprobs is None else self._texts)
            live = LiveRequest(len(plan.asked.tokens), plan.core.n, writer)
            self._live[live] = None
            stopped = asyncio.ensure_future(context.async_killed_or_stopped())
            # At once, not when the next token comes: a queued request has none.
            stopped.add_done_callback(lambda _done, stream=stream: stream.cancel())  # type: ignore[misc]
            yield plan, stream, writer, stopped
        except (RequestError, LlgtrtError) as error:
            raise self._raised(error) from None
        finally:
            self.requests -= 1
            if live is not None:
                del self._live[live]
            if stream is not None:
                stream.cancel()
            if stopped is not None:
                stopped.cancel()

    async def _start(self, request: Mapping[str, Any], context: Context) -> tuple[_Plan, Stream]:
        tokens = request.get("token_ids")
        size = BYTES_PER_TOKEN * len(tokens) if isinstance(tokens, list) else 0
        guided = request.get("sampling_options")
        if isinstance(guided, Mapping) and guided.get("guided_decoding") is not None:
            # Of schemas nobody knows how long they are: what is read and written of one takes a thread.
            size = max(size, len(str(guided["guided_decoding"])))
        plan = await in_proportion(size, self._plan, request)
        permit: Permit = self._engine.reserve(plan.core.n)
        generate = await in_proportion(size, self._generate_request, plan, context.id())
        return plan, self._engine.submit(generate, permit, plan.adapter)

    def _plan(self, request: Mapping[str, Any]) -> _Plan:
        """Checks a request. May take long for a long one."""
        info = self._engine.model_info
        asked = read_request(request, self._end_tokens)
        if len(asked.tokens) >= info.max_sequence_tokens:
            # Before its members are looked at; the core counts the answer's tokens too.
            raise RequestError(
                f"This model's maximum context length is {info.max_sequence_tokens} tokens. However, you "
                f"requested {len(asked.tokens) + 1} tokens ({len(asked.tokens)} in the prompt, 1 in the "
                "completion). Please reduce the length of the prompt or completion.",
                "token_ids",
                "context_length_exceeded",
            )
        for index, token in enumerate(asked.tokens):
            if not 0 <= token < info.vocab_size:
                raise RequestError(
                    f"token_ids[{index}] must be a token id from 0 to {info.vocab_size - 1}.",
                    f"token_ids[{index}]",
                )
        adapter = self._adapter(asked, request)
        core = core_request(asked.fields, info, self._limits, adapter=adapter)
        if core.n > self._limits.max_n:
            raise RequestError(
                f"n is {core.n}; this worker allows at most {self._limits.max_n}.", "sampling_options.n"
            )
        return _Plan(asked, core, adapter, self._grammar(asked))

    def _grammar(self, asked: Asked) -> _Grammar:
        constraint = guided_constraint(asked.guided, asked.guided_path, self._formats.control)
        if constraint is None:
            plain = _Grammar()
        elif constraint.places:
            plain = _Grammar(constraint.grammar, None, renamed(constraint.places))
        else:
            plain = _Grammar(constraint.grammar, constraint.param)
        if asked.thinking_tokens is None and not (asked.reasoning and constraint is not None):
            return plain
        if self._formats.reasoning is None and asked.thinking_tokens is not None:
            param = "stop_conditions.max_thinking_tokens"
            raise RequestError("This model has no thinking tags that a budget could end.", param)
        prompt = asked.tokens[: len(asked.tokens) - asked.generated_tokens]
        plan = self._formats.plan(None, constraint, self._tail(prompt), asked.thinking_tokens)
        if plan is None or not plan.constrained:
            # The prompt has closed the thinking already.
            return plain
        grammar, explain = plan_grammar(plan, asked.guided_path)
        return _Grammar(grammar, None, explain, marked=True)

    def _tail(self, prompt: list[int]) -> str:
        """The end of the prompt as text, with the names of those control tokens that formats use."""
        names = self._formats.markup.names
        return "".join(names.get(token) or self._engine.detokenize([token]) for token in prompt[-TAIL:])

    def _adapter(self, asked: Asked, request: Mapping[str, Any]) -> str | None:
        adapters = self._engine.model_info.adapters
        model = request.get("model")
        name = asked.adapter or (model if isinstance(model, str) and model in adapters else None)
        if name is not None and name not in adapters:
            raise RequestError("There is no LoRA adapter of this name.", "routing.lora_name")
        return name

    def _generate_request(self, plan: _Plan, request_id: str) -> GenerateRequest:
        asked = plan.asked
        return plan.core.build(
            [asked.tokens],
            logprobs=asked.logprobs,
            grammar=plan.grammar.spec,
            add_special=False,
            grammar_param=plan.grammar.param,
            control_text=asked.control_text or plan.grammar.marked,
            logprobs_form="tokens",
            text_token_ids=True,
            generated_tokens=asked.generated_tokens,
            output="deltas",
            request_id=request_id,
        )
