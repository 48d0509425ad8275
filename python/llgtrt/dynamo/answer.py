"""From the core's output to the chunks that Dynamo's frontend reads.

A chunk names its tokens and carries their text, which the frontend passes on as it is: stop strings, limits
and the ends of constrained answers are decided here, once, as they are for the server's own API.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from llgtrt.engine import ChoiceDelta, Delta, Usage
from llgtrt.tools.markup import CONTROL_CLOSE, CONTROL_OPEN


class AnswerWriter:
    """Writes the chunks of one request.

    Args:
        texts: the texts of single tokens, for log-probabilities; None where nobody asks for these.

    Attributes:
        last: the delta that was written last.
        finished: how many choices have ended.
    """

    def __init__(self, texts: TokenTexts | None) -> None:
        self._texts = texts
        self.last: Delta | None = None
        self.finished = 0

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """One chunk per choice that has news; the last of a request has the token counts."""
        self.last = delta
        chunks = [self._chunk(choice) for choice in delta.choices]
        if delta.usage is not None:
            if not chunks:
                chunks.append({"token_ids": [], "index": 0, "text": ""})
            chunks[-1]["completion_usage"] = usage(delta.usage)
        return chunks

    def _chunk(self, choice: ChoiceDelta) -> dict[str, Any]:
        tokens = choice.text_token_ids or []
        # Without a text the frontend would decode the tokens itself, all choices with one decoder.
        chunk: dict[str, Any] = {"token_ids": tokens, "index": choice.index, "text": plain(choice.text)}
        if self._texts is not None and choice.logprobs is not None and tokens:
            found = from_json(choice.logprobs)
            chunk["tokens"] = [self._texts.of(token) for token in tokens]
            chunk["log_probs"] = found["logprobs"]
            chunk["top_logprobs"] = [
                [
                    {"rank": rank, "token_id": token, "token": self._texts.of(token), "logprob": logprob}
                    for rank, (token, logprob) in enumerate(top, 1)
                ]
                for top in found["top"]
            ]
        if choice.finish_reason is not None:
            self.finished += 1
            chunk["finish_reason"] = choice.finish_reason
            if choice.stop_reason is not None:
                chunk["stop_reason"] = choice.stop_reason
        return chunk


class TokenTexts:
    """The texts of single tokens. Those asked for are kept: answers use the same ones again and again."""

    MOST = 65_536

    def __init__(self, detokenize: Any) -> None:
        self._detokenize = detokenize
        self._known: dict[int, str] = {}

    def of(self, token: int) -> str:
        """The text of a token, invalid UTF-8 replaced."""
        text = self._known.get(token)
        if text is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            text = self._known[token] = self._detokenize([token])
        return text


def plain(text: str) -> str:
    """The text with the names of control tokens as they are."""
    if CONTROL_OPEN in text or CONTROL_CLOSE in text:
        return text.replace(CONTROL_OPEN, "").replace(CONTROL_CLOSE, "")
    return text


def usage(counts: Usage) -> dict[str, Any]:
    """OpenAI's token counts."""
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
    }
