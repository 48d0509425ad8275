"""Sums that a grammar allows, calculated at once: python examples/lark_grammar.py [QUESTION]"""

from __future__ import annotations

import sys

from _client import connect

GRAMMAR = r"""
start: product (" + " product){1,3}
product: NUMBER (" * " NUMBER){0,2}
NUMBER: /[1-9][0-9]{0,2}/
"""


def main() -> None:
    client, model = connect()
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Three apples at 20, a pear at 35."}],
        max_tokens=100,
        extra_body={"guided_grammar": GRAMMAR},
    )
    text = answer.choices[0].message.content or ""
    products = [[int(number) for number in product.split(" * ")] for product in text.split(" + ")]
    total = 0
    for factors in products:
        product = 1
        for factor in factors:
            product *= factor
        total += product
    print(f"{text} = {total}")


if __name__ == "__main__":
    main()
