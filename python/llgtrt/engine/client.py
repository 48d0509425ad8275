"""The core behind an asyncio interface."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llgtrt import _native
from llgtrt._native import Embeddings, ForwardPass, GenerateRequest, GrammarSpec, KvEvent, Permit
from llgtrt.engine.composed import ComposedDelta, ComposedRequest
from llgtrt.engine.errors import EngineFailedError, LlgtrtError, new_error
from llgtrt.engine.kv_events import KvEventReader, KvEventSink
from llgtrt.engine.stream import Stream

if TYPE_CHECKING:
    from llgtrt._native import AnswerForm, Residual

logger = logging.getLogger("llgtrt.engine")

READER_STOP_S = 2.0
"""How long what publishes events may take to come to its end."""
UNREADABLE = "The engine's output could not be read."


def start_core_log(levels: str, json_lines: bool) -> None:
    """Lets the core write its log to standard error, as the directives of its filter say."""
    _native.init_logging(levels, json=json_lines)


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """What makes vectors of texts, or scores documents.

    Attributes:
        dimensions: numbers of a vector; ``None``: it makes none.
        ranks: it scores documents.
        max_tokens: most tokens of an input.
        vocab_size: token ids are below it.
        pooling: how the vectors of an input's tokens become one.
    """

    dimensions: int | None
    ranks: bool
    max_tokens: int
    vocab_size: int
    pooling: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the core knows about the loaded model."""

    backend: str
    max_sequence_tokens: int
    max_batch_size: int
    vocab_size: int
    fast_forward: bool = False
    prompt_logprobs: bool = False
    host_logits: bool = False
    allowed_logprobs: bool = False
    handover: bool = False
    eos_token_ids: tuple[int, ...] = ()
    prompt_tensors: bool = False
    device: str | None = None
    threads: int | None = None
    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    special_tokens: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    fill_in: tuple[str, str, str] | None = None
    embedder: EmbedderInfo | None = None

    @classmethod
    def parse(cls, text: str) -> ModelInfo:
        """Reads the core's JSON; members that this class does not know are left out."""
        members: dict[str, Any] = json.loads(text)
        known = {name: members[name] for name in cls.__dataclass_fields__ if name in members}
        known["special_tokens"] = tuple(known.get("special_tokens", ()))
        known["eos_token_ids"] = tuple(known.get("eos_token_ids", ()))
        known["adapters"] = tuple(known.get("adapters", ()))
        known["fill_in"] = tuple(known["fill_in"]) if known.get("fill_in") else None
        known["embedder"] = EmbedderInfo(**known["embedder"]) if known.get("embedder") else None
        return cls(**known)


class AsyncEngine:
    """Owns the native engine. Every method runs on the event loop's thread.

    The core signals once per step; :meth:`_drain` then wakes every request that waits.
    """

    def __init__(self, native: _native.Engine) -> None:
        self._native = native
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, Stream] = {}
        self._adapters: dict[int, str] = {}
        self._embeddings: dict[int, asyncio.Future[Embeddings]] = {}
        self.model_info = ModelInfo.parse(native.model_info)
        self._event_fd = native.event_fd
        self._unreadable = False
        self._reader: KvEventReader | None = None
        self._composed = 0
        self.last_submit_ms = 0
        """When the last request was submitted, in milliseconds since the epoch; 0: none was."""
        self._loop.add_reader(self._event_fd, self._drain)

    @classmethod
    async def load(cls, config: str, model: object = None) -> AsyncEngine:
        """Loads the model on another thread.

        Args:
            config: what the core is told.
            model: gives rows of logits, where the engine is one in Python.

        Raises:
            ConfigurationError: the configuration or the model is unusable.
        """
        return cls(await asyncio.to_thread(_native.Engine, config, model))

    def reserve(self, sequences: int) -> Permit:
        """Reserves queue space, before any work is done for a request.

        Raises:
            OverloadedError: the queue is full.
            ShuttingDownError: the server is draining.
            EngineFailedError: the engine is dead.
        """
        if self._unreadable:
            raise new_error(EngineFailedError, UNREADABLE)
        return self._native.reserve(sequences)

    def submit(self, request: GenerateRequest, permit: Permit, adapter: str | None = None) -> Stream:
        """Starts a request; what the tokenizer or the grammar compiler refuse comes as its first payload.

        Args:
            request: what to generate.
            permit: its reserved place.
            adapter: the LoRA adapter that it uses, for :meth:`adapters_in_use`.
        """
        self.last_submit_ms = time.time_ns() // 1_000_000
        stream = Stream(self._native.submit(request, permit), self._loop, self._forget)
        self._streams[stream.id] = stream
        if adapter is not None:
            self._adapters[stream.id] = adapter
        return stream

    def compose(self, work: Coroutine[Any, Any, ComposedDelta]) -> Stream:
        """Starts what answers a request by requests of its own.

        Args:
            work: makes the only payload; what it raises the consumer sees. Cancelling the stream cancels it.
        """
        self._composed += 1
        request = ComposedRequest(self._composed, work, self._loop)
        stream = Stream(request.handle(), self._loop, self._forget)
        request.feed(stream)
        self._streams[stream.id] = stream
        return stream

    async def embed(
        self,
        inputs: list[str] | list[tuple[str, str]] | list[list[int]],
        param: str,
        dimensions: int | None = None,
        most_tokens: int | None = None,
    ) -> Embeddings:
        """Vectors of texts or tokens, or scores of pairs. Cancelling it ends the work between two passes.

        Args:
            inputs: at least one.
            param: what errors call the list.
            dimensions: keep so many numbers of each vector.
            most_tokens: leave out the end of a text or document where an input would have more.

        Raises:
            InvalidRequestError: an input is empty, too long, or not of the vocabulary.
            OverloadedError: too many requests wait.
            ShuttingDownError: the server is draining.
            LlgtrtError: the embedder failed.
        """
        if self._unreadable:
            raise new_error(EngineFailedError, UNREADABLE)
        handle = self._native.embed(inputs, param=param, dimensions=dimensions, most_tokens=most_tokens)
        answer: asyncio.Future[Embeddings] = self._loop.create_future()
        self._embeddings[handle.id] = answer
        try:
            embeddings = await answer
        finally:
            del self._embeddings[handle.id]
            handle.cancel()
        if embeddings.error is not None:
            raise embeddings.error
        return embeddings

    def adapters_in_use(self) -> list[str]:
        """The LoRA adapters of requests that are not finished, each once, in the order of their names."""
        return sorted(set(self._adapters.values()))

    def encode(self, text: str, add_special: bool) -> list[int]:
        """Token ids of ``text``. Blocks; any thread may call it.

        Raises:
            InvalidRequestError: the text is too long.
        """
        return self._native.tokenize(text, add_special, True)

    def detokenize(self, tokens: list[int]) -> str:
        """The text of the tokens, without control tokens."""
        return self._native.detokenize(tokens)

    def write(
        self, entries: list[tuple[int, float, list[tuple[int, float]]]], form: AnswerForm
    ) -> tuple[str, str, str | None]:
        """Text, log-probabilities and stop string of an answer whose tokens are known; see ``Engine.write``.

        Any thread may call it.
        """
        return self._native.write(entries, form)

    def report(
        self,
        grammar: GrammarSpec,
        instances: list[str],
        residual: Residual | None,
        places: list[tuple[str, str]],
    ) -> bytes:
        """What is known about a grammar, as JSON; see ``Engine.report``. Blocks: call it on another thread.

        Raises:
            InvalidRequestError: an instance is beyond a limit; ``param`` names it.
            OverloadedError: too many grammars wait.
            ShuttingDownError: the server is shutting down.
        """
        return self._native.report(grammar, instances=instances, residual=residual, places=places)

    def publish_kv_events(self, sink: KvEventSink) -> None:
        """Lets a thread publish what changes in the prefix cache, until the engine is shut down. Once."""
        self._reader = KvEventReader(self, sink)

    def kv_events(self, timeout_s: float) -> list[KvEvent] | None:
        """What has changed in the prefix cache since the last call; see ``Engine.kv_events``. Blocks."""
        return self._native.kv_events(timeout_s)

    def kv_cache_usage(self) -> float:
        """Positions of the KV cache that running sequences use, as a fraction of all, 0 to 1."""
        return self._native.kv_cache_usage()

    def take_forward_passes(self) -> list[ForwardPass]:
        """The forward passes since the last call, for one reader; see ``Engine.take_forward_passes``."""
        return self._native.take_forward_passes()

    def metrics(self) -> str:
        """The core's metrics in Prometheus text format."""
        return self._native.metrics()

    def health(self) -> tuple[str, str]:
        """State (``ready``, ``draining``, ``stalled``, ``failed``) and an explanation."""
        return ("failed", UNREADABLE) if self._unreadable else self._native.health()

    def active_requests(self) -> int:
        """Requests that are not finished."""
        # Between two of its parts a composed one has no request of the core.
        return self._native.active_requests() or sum(number < 0 for number in self._streams)

    def begin_drain(self) -> None:
        """Refuses new requests; running ones go on."""
        self._native.begin_drain()

    def abort(self, error: LlgtrtError) -> None:
        """Cancels every request; each consumer sees ``error``."""
        for stream in list(self._streams.values()):
            stream.fail(error)
        for answer in self._embeddings.values():
            if not answer.done():
                answer.set_exception(error)

    async def shutdown(self) -> None:
        """Cancels what runs and stops the core's threads."""
        self._loop.remove_reader(self._event_fd)
        for stream in list(self._streams.values()):
            stream.cancel()
        for answer in self._embeddings.values():
            answer.cancel()
        await asyncio.to_thread(self._native.shutdown)
        if self._reader is not None and not await asyncio.to_thread(self._reader.join, READER_STOP_S):
            logger.warning("what publishes KV events does not return; leaving it behind")

    def _forget(self, request_id: int) -> None:
        self._streams.pop(request_id, None)
        self._adapters.pop(request_id, None)

    def _drain(self) -> None:
        streams = self._streams
        try:
            for request_id, payload, last in self._native.drain():
                if isinstance(payload, Embeddings):
                    answer = self._embeddings.get(request_id)
                    if answer is not None and not answer.done():
                        answer.set_result(payload)
                    continue
                stream = streams.get(request_id)
                if stream is not None:
                    stream.deliver(payload, last)
        except Exception:
            logger.exception("reading the engine's output failed")
            self._loop.remove_reader(self._event_fd)
            # Nothing that is submitted from now on would ever be answered.
            self._unreadable = True
            self.abort(new_error(EngineFailedError, UNREADABLE))
