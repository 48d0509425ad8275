"""The tokenizer of a GGUF file as Hugging Face's ``tokenizer.json``, which Dynamo's frontend tokenizes with.

Only tokenizers whose splitting of texts is known are written; the worker compares the result with the
engine's own tokenizer before it serves (:mod:`llgtrt.dynamo.model_folder`).
"""

from __future__ import annotations

from typing import Any

from llgtrt.config import ConfigError

GGML = "tokenizer.ggml."
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SINGLE_DIGITS = (r"\p{N}", _GPT2)

_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "llama-bpe": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "command-r": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "exaone": _SINGLE_DIGITS,
}
"""Regular expressions by llama.cpp's names: each splits what the one before it left."""

_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama-v3", "llama3"})
"""A word that is a token stays one, whatever the merges say."""


def gguf_tokenizer(values: dict[str, Any]) -> dict[str, Any]:
    """The content of ``tokenizer.json``.

    Args:
        values: the metadata whose keys begin with ``tokenizer.ggml.``.

    Raises:
        ConfigError: the tokenizer is of a kind that cannot be written.
    """
    kind, pre = values.get(f"{GGML}model"), values.get(f"{GGML}pre", "default")
    tokens, merges = values.get(f"{GGML}tokens"), values.get(f"{GGML}merges")
    if kind != "gpt2" or pre not in _SPLITS or not isinstance(tokens, list) or not isinstance(merges, list):
        raise ConfigError(
            f"the tokenizer of this GGUF file ({kind}, {pre}) cannot be written for Dynamo's frontend: give "
            "the folder of the original model with --model-folder"
        )
    types = values.get(f"{GGML}token_type") or [1] * len(tokens)
    added = [index for index, type_ in enumerate(types) if type_ in (CONTROL, USER_DEFINED)]
    return tokenizer_json(
        {token: index for index, token in enumerate(tokens) if types[index] != UNUSED},
        merges=[merge.split(" ", 1) for merge in merges],
        added=[(index, tokens[index], types[index] == CONTROL) for index in added],
        splits=_SPLITS[pre],
        whole_words=pre in _WHOLE_WORDS_FIRST,
        begin=_begin(values, tokens),
    )


def byte_tokenizer() -> dict[str, Any]:
    """The tokenizer of the sim engine: every byte is a token, and there are four control tokens."""
    names = byte_names()
    control = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
    return tokenizer_json(
        {names[byte]: byte for byte in range(256)},
        merges=[],
        added=[(256 + index, name, True) for index, name in enumerate(control)],
        splits=(),
        begin=("<s>", 256),
    )


def tokenizer_json(
    vocabulary: dict[str, int],
    *,
    merges: list[list[str]],
    added: list[tuple[int, str, bool]],
    splits: tuple[str, ...],
    whole_words: bool = False,
    begin: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """A byte-level BPE tokenizer.

    Args:
        vocabulary: ids of tokens, whose bytes are written as in GPT-2.
        merges: pairs in the order of their ranks.
        added: id, text and whether it is a control token, of tokens that are found before anything is split.
        splits: regular expressions.
        whole_words: a split that is a token is not taken apart.
        begin: token that begins texts.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    pre: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
        for split in splits
    ]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": text, **plain, "special": control} for index, text, control in added
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*pre, byte_level]},
        "post_processor": None if begin is None else _template(*begin),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": whole_words,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def byte_names() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies, as GPT-2 chose them."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _begin(values: dict[str, Any], tokens: list[str]) -> tuple[str, int] | None:
    bos = values.get(f"{GGML}bos_token_id")
    if not values.get(f"{GGML}add_bos_token") or not isinstance(bos, int) or bos >= len(tokens):
        return None
    return tokens[bos], bos


def _template(token: str, index: int) -> dict[str, Any]:
    begin = {"SpecialToken": {"id": token, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }
