"""Section ``tokenizer``: control tokens and the chat template."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from .section import Section


def _token_text(value: Any) -> Any:
    """Hugging Face writes a token as a text or as an object with the text in ``content``."""
    if isinstance(value, Mapping):
        if isinstance(value.get("content"), str):
            return value["content"]
        raise ValueError("a token is a text or an object with a text in 'content'")
    return value


TokenText = Annotated[str | None, BeforeValidator(_token_text)]


class TokenizerConfig(Section):
    """Control tokens and the chat template. Defaults: tokenizer_config.json, else the model file.

    Typically no changes are needed here, except for the chat template,
    which is best given as a file with --chat-template or as <engine>/chat_template.j2."""

    chat_template: str | None = Field(
        default=None, description="Jinja2 template that turns chat messages into the prompt."
    )
    clean_up_tokenization_spaces: bool = Field(
        default=False, description="Accepted for compatibility with tokenizer_config.json; not used."
    )
    bos_token: TokenText = Field(
        default=None,
        description="Token that begins a text. Set to null: no token is put before prompts, as for phi-3.",
    )
    eos_token: TokenText = Field(default=None, description="Token that ends an answer.")
    unk_token: TokenText = Field(default=None, description="Unknown token; for the chat template only.")
    sep_token: TokenText = Field(default=None, description="Separator token; for the chat template only.")
    pad_token: TokenText = Field(default=None, description="Padding token; for the chat template only.")
    cls_token: TokenText = Field(default=None, description="Classifier token; for the chat template only.")
    mask_token: TokenText = Field(default=None, description="Mask token; for the chat template only.")
    add_bos_token: bool | None = Field(
        default=None,
        description="Put bos_token before prompts that do not begin with it. null: as the tokenizer does.",
    )
    n_vocab_override: int | None = Field(
        default=None,
        ge=1,
        description="Vocabulary size, where the model's logits are wider than the tokenizer's table.\n"
        "Use 32064 for phi-3.",
    )
