"""The fan-out Truss under examples/ on the demo model: later generations find the first one's KV cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from openai import OpenAI

from support.server import ServerProcess, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "truss_fanout"

PROMPT = "You know about animals. " + "Answer shortly and do not repeat yourself. " * 20


@pytest.mark.timeout(300)
def test_later_generations_reuse_the_first_one_s_prompt(
    tmp_path: Path, one_thread: Path, model_file: Path
) -> None:
    folder = tmp_path / "truss_fanout"
    shutil.copytree(EXAMPLE, folder)
    with (
        ServerProcess("serve", str(folder), "--engine", str(model_file), "-C", str(one_thread)) as server,
        OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=120) as client,
    ):
        tasks = [[{"role": "user", "content": f"What does a {one} eat?"}] for one in ("cow", "cat", "bee")]
        answer = client.chat.completions.create(
            model="fanout",
            messages=[{"role": "system", "content": PROMPT}],
            max_tokens=8,
            temperature=0,
            extra_body={"suffix_messages": tasks},
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert all(choice.message.content for choice in answer.choices)
        usage = answer.usage
        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        details = usage.prompt_tokens_details
        assert details is not None
        assert details.cached_tokens is not None
        # Of three prompts that are nearly the same, the first is computed and the others are not.
        common = usage.prompt_tokens / 3
        assert details.cached_tokens > 1.8 * common
        wait_until(server.is_idle, "nothing runs behind the answer")
