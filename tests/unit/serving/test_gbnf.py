"""Grammars of llama.cpp in Lark: the same texts are accepted."""

from __future__ import annotations

import json

import pytest

from llgtrt.config import LlguidanceConfig
from llgtrt.engine import GrammarChecker, GrammarSpec
from llgtrt.serving.protocol.gbnf import GbnfError, gbnf_to_lark, is_gbnf

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""
"""llama.cpp's grammars/json.gbnf."""


@pytest.fixture(scope="module")
def checker() -> GrammarChecker:
    return GrammarChecker(LlguidanceConfig().model_dump_json(), None)


def accepted(checker: GrammarChecker, grammar: str, texts: list[str]) -> list[str]:
    lark = gbnf_to_lark(grammar)
    report = json.loads(
        checker.report(GrammarSpec.lark(lark), instances=[json.dumps(text) for text in texts])
    )
    assert report["ok"], (lark, report)
    return [text for text, one in zip(texts, report["instances"], strict=True) if one["accepted"]]


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["y", "yesno", ""]),
        ('root ::= ("a" | "b") [a-z]* "x"', ["abcx", "bx", "axx"], ["a", "bxy", "x"]),
        ('root ::= [a-z]+ [a-z]{2} "-"?', ["abc", "abcd-"], ["ab", "-"]),
        ("root ::= [^a-c\\n] .", ["dx", "d\n", "éé"], ["ax", "\nx", "d"]),
        ('root ::= \'x\' "\\x41\\u00e9\\U0001F600\\n\\""', ['xAé😀\n"'], ["x"]),
        ("root ::= [-a] [a-] [\\]\\^]", ["-a]", "a-^"], ["b-]"]),
        ('root ::= a-b a_b\na-b ::= "1"\na_b ::= "2"', ["12"], ["21"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2}', ["aab", "aabbcc"], ["ab", "aabccc"]),
        ('root ::= ( | "a") "b"', ["b", "ab"], ["a"]),
        # Ends that a repetition could have swallowed, also where the grammar is recursive.
        ('root ::= "(" root ")" | [a-z]+ "z"', ["abz", "((zz))"], ["(z)", "ab"]),
        ('root ::= item+\nitem ::= "<" root? ">" | "," item', ["<>", "<<>,<>>"], ["<", ","]),
        ("start ::= [0-9]", ["5"], ["a"]),
        (JSON, ['{"a": [1, -2.5e1, true, "x\\n"]}', "{}"], ['{"a" 1}', "[]", '{"a": 01}']),
    ],
)
def test_the_same_texts_are_accepted(
    checker: GrammarChecker, grammar: str, good: list[str], bad: list[str]
) -> None:
    assert accepted(checker, grammar, good + bad) == good


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('a ::= "x"', "no rule named root"),
        ("root ::= other", "names other"),
        ('root ::= "x', "line 1: a text is not closed"),
        ('root ::= "a"\nroot ::= "b"', "line 2: a second rule"),
        ("root ::= [b-a]", "ends before it begins"),
        ("root ::= []", "empty character class"),
        ("root ::= [a", "not closed"),
        ("root ::= (", "not closed"),
        ('root ::= "a" )', "expected NAME"),
        ('root ::= "a"{2,1}', "fewer"),
        ('root ::= "a"{x}', "expected {n}"),
        ('root ::= (="a") "a"', "look-ahead"),
        ("root ::= <think>", "tokens"),
        ('root ::= "\\ud800"', "not a character"),
        ('root ::= "\\x4"', "hexadecimal"),
        ("root ::= " + "(" * 1000, "inside each other"),
        ("root = 'a'", "expected NAME"),
    ],
)
def test_what_cannot_be_converted_says_why_and_where(grammar: str, message: str) -> None:
    with pytest.raises(GbnfError, match=message.replace("{", "\\{")):
        gbnf_to_lark(grammar)


def test_the_two_dialects_are_told_apart() -> None:
    assert is_gbnf(JSON)
    assert not is_gbnf('start: "a" /::=/')
    assert not is_gbnf('start: "root ::= "')
