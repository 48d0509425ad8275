"""Reason free, constrain late: what a free scratch part before a constrained answer does to its accuracy.

Every task has one right answer. Each is asked without a constraint (JSON is asked for in words only), with
the constraint at once, and with `thinking: {"budget_tokens": N}` before it, at temperature 0. An answer is
valid if it is JSON that satisfies the schema, judged by the `jsonschema` package.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from load import print_table
from serve import Side, llgtrt_side, model_options

EACH = 20
"""Tasks of a kind."""
BUDGETS = [32, 128]
NAMES = ["Tom", "Mia", "Ben", "Eva", "Sam", "Ida"]
THINGS = ["apples", "books", "coins", "pens", "eggs"]
CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "Egypt": "Cairo", "Russia": "Moscow", "China": "Beijing", "Greece": "Athens", "Portugal": "Lisbon",
    "Austria": "Vienna", "Norway": "Oslo", "Sweden": "Stockholm", "Ireland": "Dublin", "Cuba": "Havana",
    "Peru": "Lima", "Poland": "Warsaw", "Turkey": "Ankara", "Kenya": "Nairobi", "Finland": "Helsinki",
}  # fmt: skip
REVIEWS = {
    "The food was wonderful and the staff were kind.": "positive",
    "I waited two hours and the soup was cold.": "negative",
    "A terrible film, I left before the end.": "negative",
    "The best book that I have read in years.": "positive",
    "It broke after one day and nobody answered my letters.": "negative",
    "Clean rooms, quiet nights, we will come back.": "positive",
    "The sound is awful and the cable is too short.": "negative",
    "My children love it and play with it every day.": "positive",
    "Rude service, dirty table, never again.": "negative",
    "It works perfectly and was easy to set up.": "positive",
    "The colours faded after the first wash.": "negative",
    "A lovely little shop with friendly people.": "positive",
    "The plot makes no sense and the actors are bored.": "negative",
    "Fast delivery and exactly what I wanted.": "positive",
    "The battery dies within an hour.": "negative",
    "We laughed all evening, a brilliant show.": "positive",
    "Overpriced and disappointing.": "negative",
    "The bread is fresh and smells great.": "positive",
    "I regret buying this.": "negative",
    "Highly recommended, I am very happy with it.": "positive",
}


@dataclass(frozen=True)
class Task:
    """A question.

    Attributes:
        kind: its group in the table.
        question: the text.
        schema: of the right answer's type.
        right: the right answer.
    """

    kind: str
    question: str
    schema: dict[str, Any]
    right: Any


def tasks() -> list[Task]:
    """All of them, the same every time."""
    number = {"type": "integer", "minimum": 0, "maximum": 999}
    found = []
    for index in range(EACH):
        a, b = 3 + index * 7 % 17, 2 + index * 5 % 13
        name, thing = NAMES[index % len(NAMES)], THINGS[index % len(THINGS)]
        found.append(Task("sums", f"What is {a} + {b}?", number, a + b))
        story = f"{name} has {a + b} {thing}. {name} gives {b} of them away and then buys {index + 1} more."
        found.append(
            Task("stories", f"{story} How many {thing} does {name} have now?", number, a + index + 1)
        )
        numbers = [a * 3, b * 4 + 60, a + b]
        turned = ", ".join(str(numbers[(index + place) % 3]) for place in range(3))
        largest = f"Which of these numbers is the largest: {turned}?"
        found.append(Task("largest", largest, number, max(numbers)))
    cities = list(CAPITALS.values())
    for index, (country, city) in enumerate(CAPITALS.items()):
        choices = sorted({city, *(cities[(index + step) % len(cities)] for step in (3, 7, 12))})
        question = f"What is the capital of {country}? One of: {', '.join(choices)}."
        found.append(Task("capitals", question, {"enum": choices}, city))
    for review, mood in REVIEWS.items():
        question = f'Is this review positive or negative? "{review}"'
        found.append(Task("reviews", question, {"enum": ["positive", "negative"]}, mood))
    return found


def schema_of(task: Task) -> dict[str, Any]:
    """The schema of the whole answer."""
    return {
        "type": "object",
        "properties": {"answer": task.schema},
        "required": ["answer"],
        "additionalProperties": False,
    }


@dataclass(frozen=True)
class Condition:
    """A way to ask.

    Attributes:
        name: its row.
        constrained: the schema is enforced.
        budget: tokens of the scratch part; 0: none.
        steps: the model is told to think first.
    """

    name: str
    constrained: bool = True
    budget: int = 0
    steps: bool = False


def conditions(budgets: list[int]) -> list[Condition]:
    """The rows of the table."""
    rows = [Condition("no constraint", constrained=False), Condition("constraint")]
    rows += [Condition(f"thinking {budget}, constraint", budget=budget) for budget in budgets]
    rows.append(Condition("told to think, constraint", steps=True))
    rows += [
        Condition(f"told to think, thinking {budget}, constraint", budget=budget, steps=True)
        for budget in budgets
    ]
    return rows


def body(task: Task, condition: Condition) -> dict[str, Any]:
    """The request."""
    think = "Think step by step first. " if condition.steps else ""
    question = f'{task.question}\n{think}Answer with JSON: {{"answer": ...}}'
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 100 + 2 * condition.budget,
    }
    if condition.constrained:
        schema = {"name": "answer", "schema": schema_of(task)}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if condition.budget:
        fields["thinking"] = {"type": "enabled", "budget_tokens": condition.budget}
    return fields


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    valid: bool
    right: bool
    tokens: int


def outcome(task: Task, answer: dict[str, Any]) -> Outcome:
    """Judges an answer."""
    text = answer["choices"][0]["message"]["content"] or ""
    tokens = int(answer["usage"]["completion_tokens"])
    try:
        value = json.loads(text)
    except ValueError:
        return Outcome(False, False, tokens)
    valid = Draft202012Validator(schema_of(task)).is_valid(value)
    return Outcome(valid, valid and value["answer"] == task.right, tokens)


def measure(side: Side, given: list[Task], condition: Condition, streams: int) -> list[Outcome]:
    """The outcomes of all tasks under one condition."""
    url = f"http://127.0.0.1:{side.port}/v1/chat/completions"
    with httpx.Client(timeout=600) as client, ThreadPoolExecutor(streams) as threads:

        def ask(task: Task) -> Outcome:
            response = client.post(url, json=body(task, condition))
            response.raise_for_status()
            return outcome(task, response.json())

        return list(threads.map(ask, given))


def row(condition: Condition, given: list[Task], found: list[Outcome], base: list[Outcome]) -> list[str]:
    """A row of the table. Won and lost are counted against the constraint at once, task by task."""
    kinds = list(dict.fromkeys(task.kind for task in given))
    cells = []
    for kind in kinds:
        of_kind = [one.right for task, one in zip(given, found, strict=True) if task.kind == kind]
        cells.append(f"{sum(of_kind)}/{len(of_kind)}")
    pairs = list(zip(found, base, strict=True))
    won = sum(one.right and not other.right for one, other in pairs)
    lost = sum(other.right and not one.right for one, other in pairs)
    tokens = sum(one.tokens for one in found) / len(found)
    return [
        condition.name,
        f"{sum(one.valid for one in found)}/{len(found)}",
        *cells,
        f"{sum(one.right for one in found)}/{len(found)}",
        f"+{won} -{lost}",
        f"{tokens:.0f}",
    ]


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    arguments = parser.parse_args()
    given = tasks()
    outcomes: dict[Condition, list[Outcome]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        side = llgtrt_side(arguments.model, arguments.streams, arguments.threads, folder)
        stack.callback(side.stop)
        for condition in conditions(arguments.budgets):
            outcomes[condition] = measure(side, given, condition, arguments.streams)
            print(f"{condition.name}: done", file=sys.stderr)
    base = next(found for condition, found in outcomes.items() if condition == Condition("constraint"))
    kinds = list(dict.fromkeys(task.kind for task in given))
    print_table(
        ["asked with", "valid", *kinds, "right", "won lost", "tokens"],
        [row(condition, given, found, base) for condition, found in outcomes.items()],
    )


if __name__ == "__main__":
    main()
