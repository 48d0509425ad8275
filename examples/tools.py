"""A model that calls functions until it has an answer: python examples/tools.py [QUESTION]

Needs a running server (LLGTRT_URL, http://127.0.0.1:3000 if not set) and the `openai` package. Arguments are
always valid under the schema, so that they go straight into the function.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from openai import OpenAI

WEATHER = {"Paris": 21, "Oslo": 9, "Cairo": 33}

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_temperature",
            "description": "The temperature in a city, in degrees Celsius.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": sorted(WEATHER)}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


def get_temperature(city: str) -> dict[str, Any]:
    return {"city": city, "celsius": WEATHER[city]}


def main() -> None:
    url = os.environ.get("LLGTRT_URL", "http://127.0.0.1:3000")
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("LLGTRT_API_KEY", "none"))
    model = client.models.list().data[0].id
    question = " ".join(sys.argv[1:]) or "Is it warmer in Paris or in Oslo?"
    messages: list[Any] = [{"role": "user", "content": question}]
    # The first answer is to be a call; later the model may choose, and the last one is text.
    for choice in ("required", "auto", "none"):
        answer: Any = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            max_tokens=128,
        )
        message = answer.choices[0].message
        if answer.choices[0].finish_reason != "tool_calls":
            break
        messages.append(message.to_dict())
        for call in message.tool_calls:
            result = get_temperature(**json.loads(call.function.arguments))
            print(f"{call.function.name}({call.function.arguments}) = {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    print(message.content)


if __name__ == "__main__":
    main()
