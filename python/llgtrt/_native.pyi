"""The Rust core: engines, masks, detokenization and streaming, behind four kinds of objects.

Only ``llgtrt.engine`` and ``llgtrt.patient_json`` import this module. No call here blocks the event loop for
more than about 100 microseconds unless its docstring says so; those that may be slow release the GIL.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, TypedDict, final

__version__: Final[str]

# --- exceptions -------------------------------------------------------------------------------

class LlgtrtError(Exception):
    """Base of every error raised by the core.

    Attributes:
        kind: stable name: ``invalid_request``, ``context_length``, ``grammar``, ``constraint``,
            ``overloaded``, ``shutting_down``, ``not_finite``, ``logits_processor``, ``forward_pass``,
            ``engine_failed``, ``configuration``, ``internal``.
        message: one sentence for the client.
        param: the request field, or the JSON path inside it; ``None`` if there is none.
    """

    kind: str
    message: str
    param: str | None

class InvalidRequestError(LlgtrtError):
    """A field of the request is wrong."""

class ContextLengthError(InvalidRequestError):
    """Prompt plus requested tokens do not fit the context."""

class ConstraintError(LlgtrtError):
    """No answer was found that satisfies the part of a schema that no grammar holds."""

class GrammarError(InvalidRequestError):
    """The grammar was refused, or failed while generating."""

class OverloadedError(LlgtrtError):
    """A queue is full; try again later."""

class ShuttingDownError(LlgtrtError):
    """The server is shutting down."""

class NotFiniteError(LlgtrtError):
    """The model produced no finite logit."""

class LogitsProcessorError(LlgtrtError):
    """A logits processor of the operator's failed for this request."""

class ForwardPassError(LlgtrtError):
    """A forward pass failed with this request in it; the engine goes on."""

class EngineFailedError(LlgtrtError):
    """The engine failed; this process generates nothing more."""

class ConfigurationError(LlgtrtError):
    """The configuration or the model files are unusable."""

class InternalError(LlgtrtError):
    """A defect of the server."""

# --- requests ---------------------------------------------------------------------------------

@final
class GrammarSpec:
    """A constraint on the answer: a kind and its source text."""

    @staticmethod
    def json_schema(schema: str) -> GrammarSpec: ...
    @staticmethod
    def json_object() -> GrammarSpec: ...
    @staticmethod
    def regex(pattern: str) -> GrammarSpec: ...
    @staticmethod
    def choice(choices: list[str]) -> GrammarSpec: ...
    @staticmethod
    def lark(grammar: str) -> GrammarSpec: ...
    @staticmethod
    def llguidance(grammar: str) -> GrammarSpec: ...
    @property
    def kind(self) -> str: ...
    @property
    def source(self) -> str:
        """The text: of the schema, the expression or the grammar; of a choice, a JSON array."""

@final
class GenerateRequest:
    """One HTTP request's worth of generation: ``len(prompts) * n`` sequences.

    The sequence of prompt ``p`` and choice ``c`` has index ``p * n + c``.

    Args:
        fields: a JSON object with ``request`` and, for engines that have ``prompt_tensors`` in their
            ``model_info``, ``extras``. The first is ``GenerateRequest`` of
            ``rust/llgtrt-runtime/src/request.rs``, where each member is described; what is left out has its
            default. The other is ``PromptExtras`` of ``rust/llgtrt-py/src/options.rs``; a tensor in it is an
            object of ``element`` (``bool``, ``i32``, ``i64``, ``bf16``, ``fp8``, ``fp16`` or ``fp32``),
            ``shape`` and ``buffer``, the place of its bytes in ``buffers``.
        prompts: texts, token id lists, or long texts in pieces of UTF-8, which no other thread waits for. The
            names of control tokens in a text are control tokens; one with U+FDD0 after its first character
            stays text (the guard is removed).
        grammar: constraint; ``None`` is free text.
        buffers: the elements of tensors, as this machine lays them out.
        processors: what changes the rows of logits of each sequence, by its index: names for errors, and
            callables, which the engine's thread calls one after the other before each token that is drawn,
            with the ids of the prompt, those of what was generated and the row, writable, of the vocabulary's
            length.
            Only for engines with ``host_logits`` in their ``model_info``.
        processor_limit_s: the longest that one call may take, in seconds.
        handover_state: the state of the request's ``handover``, where it has one; what another engine of
            the same model said, unchanged. Only for engines with ``handover`` in their ``model_info``.

    What the engine lacks of ``options`` and ``extras`` is refused: that error comes as the first payload.

    Raises:
        InternalError: ``fields`` is not what the core understands; ``param`` is the path of what is wrong.
        InvalidRequestError: a tensor's bytes do not fit its shape, or fields contradict each other.
    """

    def __new__(
        cls,
        fields: bytes,
        *,
        prompts: list[str | list[int] | list[bytes]],
        grammar: GrammarSpec | None = None,
        buffers: list[bytes] = ...,
        processors: list[
            list[tuple[str, Callable[[tuple[int, ...], list[int], memoryview[float]], None]]]
        ] = ...,
        processor_limit_s: float = 1.0,
        handover_state: bytes | None = None,
    ) -> GenerateRequest: ...

# --- output -----------------------------------------------------------------------------------

@final
class Usage:
    """Token counts of a request, summed over its choices (the prompt is counted once per prompt)."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def forced_tokens(self) -> int: ...

@final
class Summary:
    """What is known of a request: all of it, once its last payload was taken.

    Moments are in seconds since the submission, ``None`` where the request did not get so far:
    ``compile_s`` from when its grammar was asked for until it was there; ``started_s`` its first sequence got
    a slot of the engine (the end of queueing); ``first_token_s`` (the end of prefill); ``ended_s``.
    """

    @property
    def usage(self) -> Usage: ...
    @property
    def finish_reasons(self) -> list[str]:
        """Of the choices that have ended, in the order of their ends."""
    @property
    def compile_s(self) -> tuple[float, float] | None: ...
    @property
    def started_s(self) -> float | None: ...
    @property
    def first_token_s(self) -> float | None: ...
    @property
    def ended_s(self) -> float | None: ...

@final
class Logits:
    """Rows of logits as the model made them, of ``columns`` numbers each: one per token of the vocabulary."""

    @property
    def columns(self) -> int: ...
    def __len__(self) -> int:
        """Number of rows."""
    def raw(self, index: int) -> bytes:
        """A row as 32-bit floats, little-endian."""
    def json(self, index: int) -> bytes:
        """A row's numbers with commas between them; ``null`` for one that is not finite. Takes milliseconds
        without the GIL."""

@final
class ChoiceDelta:
    """New text of one choice since the last delta.

    ``logprobs`` is the JSON for the new tokens in the request's ``logprobs_form``
    (``{"content": [...]}`` or ``{"tokens": [...], ...}``), or ``None``.
    ``text_token_ids`` are, if asked for, the tokens that ``text`` completes, without one that ends a
    sequence.
    ``finish_reason`` is ``stop`` or ``length`` on the choice's last delta.
    ``stop_reason`` is the stop string or stop token id that ended it.
    ``constraint`` is, on the last delta of a constrained choice, its receipt as JSON (docs/receipt.md).
    ``token_ids`` are the new tokens, where the request asks for ids, else empty; those whose text is held
    back come early.
    ``context_logits`` come all at once, ``generation_logits`` with their tokens, where the request asks for
    them.
    ``prompt_token_ids`` and ``prompt_logprobs`` (vLLM's form, as JSON) come with the choice's first delta,
    where the request asks for them.
    """

    @property
    def index(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def token_count(self) -> int: ...
    @property
    def text_token_ids(self) -> list[int] | None: ...
    @property
    def logprobs(self) -> str | None:
        """JSON; a copy of it, which may be long."""
    @property
    def logprobs_bytes(self) -> int | None:
        """How long it is as UTF-8."""
    def logprobs_piece(self, start: int, size: int) -> bytes:
        """A part of its UTF-8."""
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_reason(self) -> str | int | None: ...
    @property
    def handover(self) -> tuple[int, list[int], list[int], bytes] | None:
        """With ``not_finished``: the request's id, its first tokens, guesses at the next ones, the state.

        Another engine of the same model goes on from it."""
    @property
    def constraint(self) -> str | None: ...
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def prompt_token_ids(self) -> list[int] | None: ...
    @property
    def prompt_logprobs(self) -> str | None:
        """JSON; a copy of it, which may be long."""
    @property
    def prompt_logprobs_bytes(self) -> int | None:
        """How long it is as UTF-8."""
    def prompt_logprobs_piece(self, start: int, size: int) -> bytes:
        """A part of its UTF-8."""
    @property
    def context_logits(self) -> Logits | None: ...
    @property
    def generation_logits(self) -> Logits | None: ...

@final
class Delta:
    """What happened to a request since the last delta."""

    @property
    def choices(self) -> list[ChoiceDelta]: ...
    @property
    def so_far(self) -> Usage:
        """What was counted until now."""
    @property
    def usage(self) -> Usage | None:
        """On the last delta."""
    @property
    def error(self) -> LlgtrtError | None:
        """Set on the last delta of a failed request; text that came before it was delivered.

        A new object at each access: one that was raised holds its frames, among them this delta.
        """

Payload = bytes | Delta
"""SSE bytes for the ``*_sse`` outputs (a :class:`Delta` if the request failed), else a :class:`Delta`."""

@final
class Unsent:
    """The end of a chunk that the connection of ``RequestHandle.write_to`` did not take at once."""

    def __new__(cls, data: bytes) -> Unsent: ...
    @property
    def data(self) -> bytes: ...

@final
class RequestHandle:
    """A submitted request. Dropping the last reference cancels it."""

    @property
    def id(self) -> int: ...
    def take(self) -> tuple[Payload, bool] | None:
        """Everything ready now, and whether it is the last.

        ``None`` asks ``Engine.drain`` to deliver the next.
        """
    def write_to(self, socket: int, frames: bytes) -> bytes:
        """Writes server-sent events to a connection. A thread of the core writes those to come, while the
        reader waits: ``take`` has given ``None``.

        They are chunks of an HTTP/1.1 body. ``Engine.drain`` still gives the last payload and errors.

        Args:
            socket: descriptor of a connection to which nothing else waits to be written. It need not stay
                open.
            frames: not empty.

        Returns:
            The end of the chunk that the connection did not take at once, for the caller to write. If there
            is any, no more is written; and so it is once ``drain`` has given ``Unsent``.

        Raises:
            OSError: there is no further file descriptor. Nothing was written.
        """
    def stop_writing(self) -> bytes:
        """Ends what ``write_to`` began. To be called before anything else is written to the connection.

        Returns:
            The end of a chunk, to be written before that.
        """
    def written_ago_s(self) -> float | None:
        """Seconds since something was last written to a connection; ``None`` where nothing would be."""
    def summary(self) -> Summary:
        """What is known of the request so far."""
    def cancel(self) -> None:
        """Ends the request; nothing is delivered any more. Idempotent."""

@final
class Embeddings:
    """The answer to a request for vectors or scores.

    A vector has the model's number of dimensions, or as many as were asked for, and length 1 in the
    geometrical sense (one of zeros stays so). A pair has the model's scores as they are, without a bound.
    """

    @property
    def error(self) -> LlgtrtError | None:
        """Why there is no answer."""
    @property
    def tokens(self) -> int:
        """Tokens of all inputs."""
    def __len__(self) -> int:
        """Number of inputs."""
    def json(self, index: int) -> bytes:
        """A vector as a JSON array."""
    def raw(self, index: int) -> bytes:
        """A vector as 32-bit floats, little-endian."""
    def scores(self, index: int) -> list[float]:
        """A vector, or a pair's scores, as numbers."""

@final
class EmbedHandle:
    """A submitted request for vectors or scores. Dropping the last reference cancels it."""

    @property
    def id(self) -> int: ...
    def cancel(self) -> None:
        """Ends the request between two passes; nothing is delivered any more. Idempotent."""

@final
class Permit:
    """A reserved place for some sequences. Dropping it unused gives the place back."""

    @property
    def sequences(self) -> int: ...
    def lend_one(self) -> Permit:
        """A permit for one sequence that is a part of what this one is held for. Any number may follow each
        other; those that run at a time must not be more than ``sequences``. Also while the server drains."""

class AnswerForm(TypedDict):
    """How an answer is written: with stop strings, kept or not; with names of control tokens; and whether
    log-probabilities take the form of completions or of chat."""

    stop: list[str]
    include_stop: bool
    control_text: bool
    completion: bool

@final
class KvEvent:
    """A change of what the prefix cache holds."""

    @property
    def kind(self) -> Literal["stored", "removed", "cleared"]:
        """``cleared``: nothing is held any more of what was told before."""
    @property
    def hashes(self) -> list[int]:
        """Identities of the blocks, 63 bits each: of a block's tokens and of all before it. Stored blocks
        follow each other."""
    @property
    def parent(self) -> int | None:
        """The block before the first stored one; ``None``: there is none."""
    @property
    def tokens(self) -> list[int]:
        """Tokens of stored blocks, the same number for each."""

@final
class ForwardPass:
    """A forward pass that has ended. A sequence takes part with its prompt (prefill) or with what it has
    generated (decode)."""

    @property
    def duration_s(self) -> float:
        """Seconds from its start until its tokens were sampled."""
    @property
    def prefill_sequences(self) -> int:
        """Sequences of whose prompts something was evaluated."""
    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were evaluated."""
    @property
    def prefill_context_tokens(self) -> int:
        """Tokens of these sequences that were in the KV cache before."""
    @property
    def decode_sequences(self) -> int:
        """Sequences that generated."""
    @property
    def decode_tokens(self) -> int:
        """Tokens beyond prompts that were evaluated: sampled, forced by grammars, guessed."""
    @property
    def decode_context_tokens(self) -> int:
        """Tokens of the sequences that generated that were in the KV cache before."""

@final
class Engine:
    """The running core. Construction loads the model and may take long; it releases the GIL.

    Args:
        config: JSON, of which unknown members are refused.
        model: gives rows of logits, for the backend ``python``. The engine's thread calls
            its ``forward``. docs/plugins.md says what it has.

    Raises:
        ConfigurationError: the configuration or the model is unusable.
    """

    def __new__(cls, config: str, model: object = None) -> Engine: ...
    @property
    def model_info(self) -> str:
        """JSON: ``backend``, ``max_sequence_tokens``, ``max_batch_size``, ``vocab_size``, ``fast_forward``,
        ``prompt_logprobs``, ``allowed_logprobs``, ``prompt_tensors`` (takes what a prompt has beside
        tokens), ``chat_template`` (from the model file, or null), ``bos_token``, ``eos_token`` (texts or
        null), ``eos_token_ids``, ``special_tokens`` (every control token's text), ``metadata`` (object of
        strings), ``fill_in`` (texts of the tokens before prefix, suffix and middle of a text to fill in,
        or null), ``embedder`` (null, or ``dimensions`` (null if it makes no vectors),
        ``ranks``, ``max_tokens``, ``vocab_size``, ``pooling``).
        """
    @property
    def event_fd(self) -> int:
        """Becomes readable when ``drain`` has something; ``drain`` resets it."""
    def drain(self) -> list[tuple[int, Payload | Unsent | Embeddings, bool]]:
        """``(request id, payload, last)`` for every request that asked by a ``take`` that gave ``None``, and
        for every request for vectors or scores that is done. What a connection took that ``write_to`` named
        is not among them. After ``Unsent`` a request has to ask again."""
    def reserve(self, sequences: int) -> Permit:
        """Reserves queue space.

        Raises:
            OverloadedError: the queue is full.
            ShuttingDownError: the server is draining.
            EngineFailedError: the engine is dead.
        """
    def submit(self, request: GenerateRequest, permit: Permit) -> RequestHandle:
        """Starts a request. Tokenizing and compiling the grammar happen on other threads; what they refuse
        comes as the error of the first delta."""
    def embed(
        self,
        inputs: list[str] | list[tuple[str, str]] | list[list[int]],
        *,
        param: str = "input",
        dimensions: int | None = None,
        most_tokens: int | None = None,
    ) -> EmbedHandle:
        """Asks for the vectors of texts or of tokens, or for the scores of pairs of query and document.

        ``drain`` gives the answer. What is wrong with an input is its error, which names the input as a
        member of ``param``; ``dimensions`` keeps so many numbers of each vector. With ``most_tokens`` the end
        of a text or document is left out where an input would have more tokens; else that is an error.

        Raises:
            OverloadedError: too many requests wait.
            ShuttingDownError: the server is draining.
            InternalError: there is no embedder.
        """
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids. Releases the GIL; may be slow for long texts."""
    def write(
        self, entries: list[tuple[int, float, list[tuple[int, float]]]], form: AnswerForm
    ) -> tuple[str, str, str | None]:
        """Text and log-probabilities (JSON) of an answer, and the stop string that ends it.

        Args:
            entries: its tokens without the one that ended it, each with its log-probability and the
                likeliest tokens with theirs.
            form: how it is written.
        """
    def detokenize(self, tokens: list[int]) -> str:
        """The text of the tokens, invalid UTF-8 replaced; control tokens are skipped."""
    def report(
        self,
        grammar: GrammarSpec,
        *,
        instances: list[str] = ...,
        residual: Residual | None = None,
        places: list[tuple[str, str]] = ...,
    ) -> bytes:
        """What is known about a grammar with the model's tokenizer, without generating: JSON in UTF-8.

        Blocks for at most the compile deadline and half a second, and releases the GIL: call it on a thread
        of its own. The work is done in a compile slot. Members: ``ok``; ``errors``, each with ``path``,
        ``keyword``, ``message``, ``hint``; ``rules``, each with ``name``, ``count``, ``paths``; ``residual``,
        each with ``path``, ``keyword``; ``warnings``; ``normalized``; ``grammar_size``; ``compile_ms``;
        ``first_mask_tokens``; ``instances``, each with ``accepted``, ``rejected_at``, ``reason`` and, where
        ``rejected_at`` counts in another text than the instance, ``text``.

        Args:
            instances: JSON texts. A JSON string is the text of an answer or, under a schema, a JSON string.
            residual: refuse what no grammar can hold, or list it as ``residual``; None: as a request.
            places: prefixes of paths in the grammar and what the report calls them; the first that fits
                counts.

        Raises:
            InvalidRequestError: an instance is beyond a limit; ``param`` names it.
            OverloadedError: too many grammars wait.
            ShuttingDownError: the core was shut down.
        """
    def kv_events(self, timeout_s: float) -> list[KvEvent] | None:
        """What has changed in the prefix cache since the last call, for one reader.

        Waits for it up to ``timeout_s`` (at most 60) with the GIL released, and gives an empty list
        after that. A reader that is late by more than the cache holds gets ``cleared`` and everything anew.
        ``None``: the core was shut down, or the configuration asks for no events.
        """
    def kv_cache_usage(self) -> float:
        """Positions of the KV cache that running sequences use, as a fraction of all, 0 to 1."""
    def take_forward_passes(self) -> list[ForwardPass]:
        """The forward passes since the last call, for one reader, the oldest first; of more than 64 the
        last ones."""
    def metrics(self) -> str:
        """Prometheus text exposition of the core's metrics."""
    def health(self) -> tuple[str, str]:
        """State (``ready``, ``draining``, ``stalled``, ``failed``) and an explanation."""
    def active_requests(self) -> int:
        """Requests that are not finished."""
    def begin_drain(self) -> None:
        """Refuse new requests; running ones go on."""
    def shutdown(self) -> None:
        """Cancels what runs and stops every thread. Releases the GIL. Idempotent."""

Residual = Literal["refuse", "verify"]

@final
class GrammarChecker:
    """Reports on grammars without an engine.

    Args:
        llguidance: the configuration's section as JSON.
        tokenizer_path: a ``tokenizer.json``, or a folder with one; without it, tokens are single bytes.

    Raises:
        ConfigurationError: the section or the tokenizer is unusable.
    """

    def __new__(cls, llguidance: str, tokenizer_path: str | None = None) -> GrammarChecker: ...
    def report(
        self,
        grammar: GrammarSpec,
        *,
        instances: list[str] = ...,
        residual: Residual | None = None,
        places: list[tuple[str, str]] = ...,
    ) -> bytes:
        """As ``Engine.report``."""

def explain_schema(schema: str, *, residual: Residual | None = None, standard: bool = False) -> str:
    """The stages that a JSON schema goes through on its way to a grammar, as Markdown for people.

    ``residual`` is ``verify`` if it is left out.

    Raises:
        GrammarError: the schema is refused; ``param`` is the path of the keyword.
    """

def tokenize_with(tokenizer_path: str, texts: list[str]) -> list[list[int]]:
    """Token ids of texts under a ``tokenizer.json``; names of control tokens count as such.

    Blocks while the file is read, and releases the GIL.

    Raises:
        ConfigurationError: the tokenizer is unusable.
        InvalidRequestError: a text is too long.
    """

def read_json(text: str | bytes | bytearray, max_values: int, max_containers: int) -> Any:
    """The value that a JSON text holds; a mark of the byte order before bytes is left out.

    Parses without the GIL, and gives way to other threads while it makes the objects.

    Raises:
        ValueError: it is not JSON, not UTF-8, holds half of a surrogate pair, NaN or an infinity, is nested
            too deeply, or holds more values than that, or more arrays and objects.
    """

def use_huge_pages() -> None:
    """From now on large blocks of Python's memory are on huge pages, as far as the system has some.

    To be called once, before there are other threads.
    """

def free_gpu_memory() -> int | None:
    """Bytes that are free on the GPUs that llama.cpp can use; ``None``: it can use none.

    The first call initializes their driver, and may take a second.
    """

def config_fields() -> str:
    """JSON: the fields of every configuration section as Rust reads them.

    For the test that compares both sides.
    """

def request_fields() -> str:
    """JSON: the fields of a request, and of each object in it, as Rust reads them.

    For the test that compares both sides.
    """

def init_logging(level: str, *, json: bool = False) -> None:
    """Sends the core's log to standard error, a line of text or of JSON per event.

    Levels: ``error``, ``warn``, ``info``, ``debug``, ``trace``, ``off``, or the directives of tracing's
    filter. The first call wins.
    """

def trtllm_plugin_sources() -> list[tuple[str, str]]:
    """Path and text of every file that the TensorRT-LLM plugin is built from."""

def mpi_rank() -> tuple[int, int]:
    """This process's rank and the number of processes, as mpirun or Slurm tell them; (0, 1) alone."""

def run_trtllm_worker(config: str) -> None:
    """Works for the leader of a group of processes until it ends. Blocks, with the GIL released.

    Raises:
        ConfigurationError: the configuration or the engine is unusable.
    """
