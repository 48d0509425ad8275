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


def test_roles() -> None:
    plain = ChatTemplate(TEXT)
    developer = [{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]
    assert plain.style.system_role
    assert plain.render(developer).text == "[system]d[user]u"
    knows = ChatTemplate(TEXT + "{# developer #}")
    assert knows.render(developer).text == "[developer]d[user]u"
    refuses = ChatTemplate(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEXT
    )
    assert not refuses.style.system_role
