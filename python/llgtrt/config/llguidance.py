"""Section ``llguidance``: constrained answers."""

from typing import Literal

from pydantic import Field

from .section import Section


class LimitsConfig(Section):
    """Limits of the grammar parser."""

    max_items_in_row: int = Field(
        default=8_000,
        ge=1,
        description='The "branching factor" of a grammar: Earley items per byte of the answer.\n'
        "An object with many optional properties needs some for each of them.",
    )
    initial_lexer_fuel: int = Field(
        default=1_000_000,
        ge=1,
        description="Effort to build the regular expressions of a grammar; about 50k per ms.",
    )
    step_lexer_fuel: int = Field(
        default=1_000_000, ge=1, description="Lexer effort for one token mask; about 14k per ms."
    )
    step_max_items: int = Field(
        default=50_000, ge=1, description="Earley items created for one token mask; about 20k per ms."
    )
    max_lexer_states: int = Field(
        default=250_000, ge=1, description="Lexer states of one grammar; 1 to 2 kB of memory each."
    )
    max_grammar_size: int = Field(
        default=500_000, ge=1, description="Symbols in the productions of a grammar; a few MB of JSON."
    )
    precompute_large_lexemes: bool = Field(
        default=True, description="Compile large lexemes when the grammar is compiled, not at the first mask."
    )
    verbose_errors: bool = Field(
        default=False, description="Repeat the grammar in error messages. Clients see these messages."
    )


class LlguidanceConfig(Section):
    """Constrained answers: the llguidance library, and what grammars of clients may cost."""

    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="Limits of the grammar parser.")
    log_level: int = Field(
        default=1,
        ge=0,
        description="What llguidance writes to standard error: 0 nothing, 1 warnings, 2 and more details.",
    )
    compile_slots: int = Field(default=2, ge=1, description="Grammars compiled at the same time.")
    compile_queue_size: int = Field(
        default=64, ge=0, description="Grammars that wait for a slot; more are refused with status 503."
    )
    compile_deadline_ms: int = Field(
        default=5_000, ge=1, description="Longest compilation of a grammar, in milliseconds."
    )
    compile_memory_megabytes: int = Field(
        default=1_536,
        ge=0,
        description="Memory for compilations together, in MB. Each takes at most 256 MB, and as many as fit\n"
        "may be in progress, those past their deadline included; never fewer than compile_slots.",
    )
    cache_megabytes: int = Field(default=256, ge=0, description="Memory for compiled grammars, in MB.")
    lexer_memory_megabytes: int = Field(
        default=1_024,
        ge=1,
        description="Memory that the lexers of all running sequences may grow to, in MB, estimated. Beyond\n"
        "it a sequence with more than its share begins with a fresh lexer.",
    )
    mask_threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads that compute token masks beside the engine's own.\n"
        "null: one less than there are processor cores.",
    )
    max_source_bytes: int = Field(
        default=1_048_576,
        ge=1,
        description="Size of a grammar's source in bytes; for a choice, the sum of its texts.",
    )
    max_depth: int = Field(
        default=100,
        ge=1,
        description="Nesting of a grammar's source, followed through $ref of a JSON schema.",
    )
    max_regex_bytes: int = Field(default=8_192, ge=1, description="Size of one regular expression, in bytes.")
    max_enum_values: int = Field(
        default=10_000,
        ge=1,
        description="enum and const values of a whole JSON schema; also texts of a choice.",
    )
    max_properties: int = Field(default=5_000, ge=1, description="Properties of a whole JSON schema.")
    residual: Literal["verify", "refuse"] = Field(
        default="verify",
        description="What a JSON schema asks and no grammar can hold (uniqueItems of long lists, for\n"
        "instance): verify checks it while the answer grows, and takes back tokens that lead to no valid\n"
        "answer; refuse answers 400. A request may say it for itself. Engines that cannot take tokens back\n"
        "(TensorRT-LLM) refuse.",
    )
    residual_attempts: int = Field(
        default=200,
        ge=1,
        description="With residual: verify, tokens are taken back this often in a row without the answer\n"
        "getting any further; then the request fails with status 422.",
    )
    standard: bool = Field(
        default=False,
        description="JSON schemas mean what the standard says, to the letter: an object that names\n"
        "properties and says nothing of others takes any others, and numbers have any number of digits.\n"
        "false: it takes none, because models invent some, unless the schema says\n"
        "additionalProperties: true, and numbers end, because models may go on with digits.\n"
        "x-guidance: {standard: true} in a schema wins over this.",
    )
    whitespace_pattern: str | None = Field(
        default=r"\x20",
        description="Regular expression of the whitespace between the tokens of JSON answers.\n"
        "The default is one blank, or none: no model writes whitespace for ever, or spends tokens on\n"
        "indentation. null: llguidance's own, without bound.\n"
        "The x-guidance of a request's schema wins over this and the next three.",
    )
    whitespace_flexible: bool = Field(
        default=True, description="Allow whitespace between the tokens of JSON answers at all."
    )
    item_separator: str | None = Field(
        default=None,
        description="Regular expression between the items of JSON answers. null: a comma.",
    )
    key_separator: str | None = Field(
        default=None,
        description="Regular expression between a key and its value in JSON answers. null: a colon.",
    )
