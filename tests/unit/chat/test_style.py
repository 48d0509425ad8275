"""What templates expect is found by trying them."""

from typing import Any

import pytest

from llgtrt.chat import ChatTemplate

TEXT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
PARTS = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
BOTH = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)
CALLS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.name }}(ARGUMENTS){% endfor %}{% endfor %}"
)
AS_OBJECT = CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
AS_TEXT = CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}")
CONCATENATED = CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}")
EITHER = CALLS.replace(
    "ARGUMENTS",
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}",
)
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "42"},
]


@pytest.mark.parametrize(("source", "parts"), [(TEXT, False), (PARTS, True), (BOTH, False)])
def test_content_as_text_or_parts(source: str, parts: bool) -> None:
    template = ChatTemplate(source)
    assert template.style.content_parts is parts
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for form in ("a\nb", content):
        assert template.render([{"role": "user", "content": form}]).text == "[user]a\nb"


@pytest.mark.parametrize("source", [AS_OBJECT, AS_TEXT, CONCATENATED, EITHER])
def test_arguments_are_json_in_every_template(source: str) -> None:
    prompt = ChatTemplate(source).render(HISTORY)
    assert prompt.text == '[user]hi[assistant]f({"a": 1})[tool]42'


def test_null_content_only_where_the_template_knows_it() -> None:
    knows = (
        "{% for m in messages %}{% if m.content is none %}"
        "CALL {{ m.tool_calls[0].function.arguments | tojson }}"
        "{% else %}{{ m.content }}{% endif %};{% endfor %}"
    )
    template = ChatTemplate(knows)
    assert template.style.null_content
    assert template.render(HISTORY).text == 'hi;CALL {"a": 1};42;'
    adds = (
        "{% for m in messages %}{{ m.content + '' }}{{ m.tool_calls | tojson if m.tool_calls }};{% endfor %}"
    )
    assert not ChatTemplate(adds).style.null_content


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def test_tools_go_into_the_system_message_where_the_template_shows_none() -> None:
    plain = ChatTemplate(TEXT)
    assert not plain.style.tools
    assert not plain.style.tool_calls
    prompt = plain.render([{"role": "system", "content": "Hi."}, *HISTORY], tools=[TOOL]).text
    assert prompt.startswith("[system]Hi.\n\nYou may call")
    assert '{"type": "function", "function": {"name": "look"' in prompt
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert prompt.endswith(f"[user]hi[assistant]{call}[user]<tool_response>\n42\n</tool_response>")
    shows = ChatTemplate(AS_OBJECT + "{{ tools | tojson if tools }}")
    assert shows.style.tools
    assert shows.render(HISTORY, tools=[TOOL]).text.count("look") == 1


def test_the_instruction_names_the_form_that_the_grammar_holds_calls_to() -> None:
    template = ChatTemplate(TEXT + "{# [TOOL_CALLS] #}")
    prompt = template.render([{"role": "user", "content": "u"}], tools=[TOOL]).text
    assert '[TOOL_CALLS][{"name": "<function-name>", "arguments": <arguments>}]' in prompt
    assert "<tool_call>" not in prompt


def test_roles() -> None:
    plain = ChatTemplate(TEXT)
    developer = [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]
    assert plain.style.system_role
    assert plain.render(developer).text == "[system]d[user]u"
    knows = ChatTemplate(TEXT + "{% if messages[0].role in ['system', 'developer'] %}{% endif %}")
    assert knows.render(developer).text == "[developer]d[user]u"
    assert not ChatTemplate(TEXT + "{# developer #}the developer").style.developer_role
    refuses = ChatTemplate(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEXT
    )
    assert not refuses.style.system_role


DOCUMENTS = "{% for d in documents or [] %}<{{ d.title }}>{{ d['text'] }}{% endfor %}"


@pytest.mark.parametrize(("source", "shown"), [(TEXT, False), (DOCUMENTS + TEXT, True)])
def test_documents_go_into_the_system_message_where_the_template_shows_none(source: str, shown: bool) -> None:
    template = ChatTemplate(source, special_tokens=["<eos>"])
    assert template.style.documents is shown
    documents = [{"title": "A", "text": "7 is ä<eos>."}, {"title": "B", "text": "b"}]
    prompt = template.render(HISTORY[:1], documents=documents)
    if shown:
        assert prompt.expanded == "<A>7 is ä<eos>.<B>b[user]hi"
    else:
        assert prompt.expanded == (
            "[system]Answer with the help of these documents, each as one line of JSON:\n<documents>\n"
            '{"title": "A", "text": "7 is ä<eos>."}\n{"title": "B", "text": "b"}\n</documents>[user]hi'
        )
    # What stands in a document is text, never a control token.
    assert "<eos>" not in prompt.text
    assert "documents" not in template.render(HISTORY[:1], documents=[]).expanded
