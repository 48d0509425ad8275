"""Messages to prompts."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from llgtrt.chat import CHATML, GUARD, ChatError, ChatTemplate, load_chat_template
from llgtrt.config import Config, ConfigError, Settings

CONFIGS = Path(__file__).parents[3] / "configs"
HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


def test_chatml() -> None:
    prompt = ChatTemplate(CHATML).render([{"role": "system", "content": "S"}, *HELLO])
    assert prompt.text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.expanded == prompt.text


def test_no_generation_prompt() -> None:
    assert ChatTemplate(CHATML).render(HELLO, add_generation_prompt=False).text.endswith("<|im_end|>\n")


def test_what_hugging_face_templates_use() -> None:
    source = """{{ bos_token }}{% for m in messages %}
    {% if m.role == 'never' %}{% continue %}{% endif %}
    {% generation %}
{{ m.content }}{% endgeneration %}
{% endfor %}
{{ {'b': 'é<', 'a': 1} | tojson }}{{ [1] | tojson(indent=2) }}{{ tools is none }}
{{- strftime_now('%Y') | length }}"""
    prompt = ChatTemplate(source, tokens={"bos_token": "<s>"}).render(HELLO)
    assert prompt.text == '<s>Hello{"b": "é<", "a": 1}[\n  1\n]True4'


def test_bos_is_written_once() -> None:
    with_bos = ChatTemplate("{{ bos_token }}" + CHATML, tokens={"bos_token": "<s>"}, special_tokens=["<s>"])
    assert with_bos.writes_bos
    assert with_bos.render(HELLO).add_special is False
    without = ChatTemplate(CHATML, tokens={"bos_token": "<s>"})
    assert not without.writes_bos
    assert without.render(HELLO).add_special is True
    # A user cannot pretend that the template wrote one.
    bare = ChatTemplate("{{ messages[0].content }}", tokens={"bos_token": "<s>"}, special_tokens=["<s>"])
    assert bare.render([{"role": "user", "content": "<s>"}]).add_special is True


def test_user_text_is_guarded_everywhere() -> None:
    source = """{% for m in messages %}<X>{{ m.role }}{{ m.name }}{{ m.content }}{{ m.tool_call_id }}
{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}{{ json_schema | tojson if json_schema is defined }}"""
    call = {"id": "<X>", "function": {"name": "<X>", "arguments": '{"<X>": "<X>"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "<X>"}], "name": "<X>"},
        {"role": "assistant", "content": "<X>", "tool_calls": [call]},
        {"role": "tool", "content": "<X>", "tool_call_id": "<X>"},
    ]
    template = ChatTemplate(source, special_tokens=["<X>"], allowed_kwargs=["mode"])
    prompt = template.render(messages, json_schema={"<X>": "<X>"}, template_kwargs={"mode": "<X>"})
    assert prompt.text.count("<X>") == 3, "the template's own"
    assert prompt.text.count(f"<{GUARD}X>") == 11
    assert GUARD not in prompt.expanded
    assert prompt.expanded == prompt.text.replace(GUARD, "")


def test_a_name_over_two_parts_is_guarded() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    template = ChatTemplate(source, special_tokens=["<a\nb>"])
    parts = [{"type": "text", "text": "<a"}, {"type": "text", "text": "b>"}]
    assert template.render([{"role": "user", "content": parts}]).text == f"<{GUARD}a\nb>"


@pytest.mark.parametrize(
    ("source", "contents", "text"),
    [
        # What the template leaves out was between two halves of a name.
        (
            "{{ messages[0].content | replace('<image>', '') }}",
            ["<|e<image>nd|>"],
            f"<{GUARD}|e<{GUARD}image>nd|>",
        ),
        (
            "{{ messages[0].content.split('/')[0] }}{{ messages[0].content.split('/')[1] }}",
            ["<|/end|>"],
            f"<{GUARD}|end|>",
        ),
        # Two texts stand side by side.
        ("{% for m in messages %}{{ m.content }}{% endfor %}", ["<|en", "d|>"], f"<{GUARD}|end|>"),
        # Neither: the template sees the text as it was written.
        ("{{ messages[0].content.split('</a>')[-1] }}<|end|>", ["<a></a>b"], "b<|end|>"),
    ],
)
def test_no_name_comes_together_out_of_what_users_wrote(source: str, contents: list[str], text: str) -> None:
    template = ChatTemplate(source, special_tokens=["<|end|>"])
    assert template.render([{"role": "user", "content": content} for content in contents]).text == text


@pytest.mark.parametrize(
    "text",
    [
        "{{ 7 * 7 }}",
        "{% for x in range(9) %}x{% endfor %}",
        "{{ cycler.__init__.__globals__ }}",
        "{# gone #}",
    ],
)
def test_messages_are_never_templates(text: str) -> None:
    assert f"user\n{text}<|im_end|>" in ChatTemplate(CHATML).render([{"role": "user", "content": text}]).text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('id') }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(messages) }}{{ messages.append(1) }}",
    ],
)
def test_templates_are_sandboxed(source: str) -> None:
    with pytest.raises(ConfigError, match="fails on a plain user message"):
        ChatTemplate(source)


def test_a_refusal_of_the_template_is_the_clients_error() -> None:
    source = "{% if messages[0].role == 'assistant' %}{{ raise_exception('I come first') }}{% endif %}x"
    with pytest.raises(ChatError, match="refused the messages: I come first") as caught:
        ChatTemplate(source).render([{"role": "assistant", "content": "1"}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize("expression", ["1 / 0", "messages[9].x.y", "'a' + 1", "{}['a'].b", "range(10**9)"])
def test_any_failure_of_a_template_is_an_error(expression: str) -> None:
    source = "{% if messages | length > 1 and messages[0].name == 'x' %}{{ " + expression + " }}{% endif %}"
    with pytest.raises(ChatError, match="failed on the messages"):
        ChatTemplate(source).render([{"role": "user", "content": "a", "name": "x"}, *HELLO])


def test_a_prompt_has_a_greatest_size() -> None:
    source = "{% for i in range(messages | length * 1000) %}{{ messages[0].content }}{% endfor %}"
    template = ChatTemplate(source, max_prompt_chars=10_000)
    with pytest.raises(ChatError, match="longer than 10000 characters"):
        template.render([{"role": "user", "content": "x" * 100}])


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'a }}", "{% endfor %}", "{% nonsense %}"])
def test_a_syntax_error_names_template_and_line(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^my\.j2:2: "):
        ChatTemplate("\n" + source, name="my.j2")


def test_arguments_nested_too_deeply_are_an_error() -> None:
    nested = json.loads('{"a":' * 900 + "1" + "}" * 900)
    for _ in range(3000):
        nested = {"a": nested}
    call = {"function": {"name": "f", "arguments": nested}}
    with pytest.raises(ChatError, match="too deeply"):
        ChatTemplate(CHATML).render([*HELLO, {"role": "assistant", "tool_calls": [call]}])


class TestKwargs:
    SOURCE = "{{ messages[0].content }}{{ mode | default('off') }}"

    @pytest.mark.parametrize("allowed", [["mode"], []])
    def test_what_the_template_reads_is_allowed(self, allowed: list[str]) -> None:
        template = ChatTemplate(self.SOURCE, allowed_kwargs=allowed)
        assert template.render(HELLO).text == "Hellooff"
        assert template.render(HELLO, template_kwargs={"mode": "on"}).text == "Helloon"

    @pytest.mark.parametrize("key", ["made", "messages", "bos_token", "tojson", "x" * 1000])
    def test_others_are_refused(self, key: str) -> None:
        template = ChatTemplate(
            self.SOURCE, tokens={"bos_token": "<s>"}, allowed_kwargs=["messages", "bos_token"]
        )
        with pytest.raises(ChatError, match="may not be set; allowed: mode") as caught:
            template.render(HELLO, template_kwargs={key: 1})
        assert caught.value.param == "chat_template_kwargs"
        assert len(caught.value.message) < 200


class TestDate:
    OWN = (
        "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}"
    )

    def test_a_template_with_a_date_of_its_own_keeps_it(self) -> None:
        assert ChatTemplate(self.OWN).render(HELLO).text == "26 Jul 2024"

    def test_requests_may_set_it_there(self) -> None:
        prompt = ChatTemplate(self.OWN).render(HELLO, template_kwargs={"date_string": "1 May 2025"})
        assert prompt.text == "1 May 2025"

    def test_one_that_only_prints_it_gets_todays(self) -> None:
        template = ChatTemplate("{{ date_string }}")
        assert re.fullmatch(r"[1-9]\d? [A-Z][a-z]+ 2\d{3}", template.render(HELLO).text)
        with pytest.raises(ChatError, match="may not be set"):
            template.render(HELLO, template_kwargs={"date_string": "1 May 2025"})


class TestContinue:
    @pytest.mark.parametrize("content", ["The answer is", " spaced  ", "a <|im_end|> b"])
    def test_the_final_message_stays_open(self, content: str) -> None:
        template = ChatTemplate(CHATML, special_tokens=["<|im_end|>"])
        messages = [*HELLO, {"role": "assistant", "content": content}]
        prompt = template.render(messages, add_generation_prompt=False, continue_final_message=True)
        assert prompt.expanded.endswith(f"<|im_start|>assistant\n{content}")

    def test_by_default_a_final_answer_is_closed(self) -> None:
        prompt = ChatTemplate(CHATML).render([*HELLO, {"role": "assistant", "content": "A"}])
        assert prompt.text.endswith("A<|im_end|>\n<|im_start|>assistant\n")

    def test_what_cannot_be_continued(self) -> None:
        template = ChatTemplate(CHATML)
        with pytest.raises(ChatError, match="cannot both be true"):
            template.render(HELLO, continue_final_message=True)
        with pytest.raises(ChatError, match="needs a final assistant message"):
            template.render(HELLO, add_generation_prompt=False, continue_final_message=True)
        silent = ChatTemplate("{{ messages[0].content }}")
        messages = [*HELLO, {"role": "assistant", "content": "A"}]
        with pytest.raises(ChatError, match="does not print the final message"):
            silent.render(messages, add_generation_prompt=False, continue_final_message=True)


class TestSchema:
    def test_the_template_places_it(self) -> None:
        template = ChatTemplate(
            "{{ messages[0].content }}{% if json_schema is defined %}{{ json_schema | tojson }}{% endif %}"
        )
        assert template.shows_json_schema
        assert template.render(HELLO, json_schema=SCHEMA).text == "Hello" + json.dumps(SCHEMA)
        assert template.render(HELLO).text == "Hello"

    def test_else_it_joins_the_system_message(self) -> None:
        template = ChatTemplate(CHATML)
        text = template.render([{"role": "system", "content": "S"}, *HELLO], json_schema=SCHEMA).text
        assert (
            f"system\nS\n\nAnswer with JSON that conforms to this JSON schema:\n{json.dumps(SCHEMA)}<" in text
        )
        text = template.render(HELLO, json_schema=SCHEMA).text
        assert text.startswith("<|im_start|>system\nAnswer with JSON")
        assert text.count("system\n") == 1

    def test_else_the_first_question(self) -> None:
        refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML
        text = ChatTemplate(refuses).render(HELLO, json_schema=SCHEMA).text
        assert text.startswith("<|im_start|>user\nAnswer with JSON")
        assert "}\n\nHello<|im_end|>" in text

    def test_messages_of_the_caller_are_left_alone(self) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
        ]
        before = json.dumps(messages)
        ChatTemplate(CHATML).render(messages, json_schema=SCHEMA)
        assert json.dumps(messages) == before


class TestLoad:
    def test_the_operators_wins(self) -> None:
        settings = Settings(chat_template="op{{ messages[0].content }}")
        assert load_chat_template(settings, {"chat_template": "model"}).render(HELLO).text == "opHello"
        assert load_chat_template(Settings(), {"chat_template": "model"}).render(HELLO).text == "model"

    def test_the_last_resort_is_chatml_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            template = load_chat_template(Settings(), {"chat_template": None})
        assert "ChatML" in caplog.text
        assert template.render(HELLO).text.startswith("<|im_start|>user")

    def test_tokens_come_from_the_configuration_else_the_model(self) -> None:
        info = {
            "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
        assert load_chat_template(Settings(), info).render(HELLO).text == "<s>|</s>|"
        config = Config.model_validate(
            {"tokenizer": {"bos_token": None, "eos_token": "<e>", "pad_token": "<p>"}}
        )
        assert load_chat_template(Settings(config=config), info).render(HELLO).text == "|<e>|<p>"


class TestModelFamilies:
    def test_smollm2(self) -> None:
        template = ChatTemplate((CONFIGS / "smollm2" / "chat_template.j2").read_text())
        text = template.render(HELLO, json_schema=SCHEMA).text
        assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant.\n\nAnswer with JSON")
        assert text.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
        text = template.render([{"role": "system", "content": "S"}, *HELLO]).text
        assert text.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n")

    def test_llama31(self) -> None:
        template = ChatTemplate(
            (CONFIGS / "llama31" / "chat_template.j2").read_text(),
            tokens={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        )
        assert template.writes_bos
        call = {"function": {"name": "f", "arguments": '{"x": "é"}'}}
        history: list[dict[str, Any]] = [
            {"role": "system", "content": " S "},
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "42"},
        ]
        text = template.render(history, json_schema={"type": "string"}, tools=[{"name": "f"}]).text
        head = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\nCutting"
        assert text.startswith(head)
        assert "\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nUse these functions" in text
        assert 'this schema exactly:\n{\n    "type": "string"\n}<|eot_id|>' in text
        assert '<|python_tag|>{"name": "f", "parameters": {"x": "é"}}<|eot_id|>' in text
        assert text.endswith(
            "ipython<|end_header_id|>\n\n42<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        )


@pytest.mark.parametrize(
    ("template", "role", "printed"),
    [
        (CHATML, "critic", "<|im_start|>critic\nbad<|im_end|>\n"),
        ("llama3", "ipython", "<|start_header_id|>ipython<|end_header_id|>\n\nbad<|eot_id|>"),
        ("openchat", "critic", "GPT4 Correct Critic: bad<|end_of_turn|>"),
    ],
)
def test_roles_that_the_template_prints(template: str, role: str, printed: str) -> None:
    folder = Path(__file__).parents[2] / "data" / "chat_templates"
    source = template if template == CHATML else (folder / f"{template}.jinja").read_text(encoding="utf-8")
    one = ChatTemplate(source, tokens={"bos_token": "<s>"})
    for _ in range(2):
        assert printed in one.render([*HELLO, {"role": role, "content": "bad"}]).text


@pytest.mark.parametrize("template", ["zephyr", "mistral_v1", "phi3", "qwen25", "granite3"])
def test_a_role_that_the_template_leaves_out_is_refused(template: str) -> None:
    folder = Path(__file__).parents[2] / "data" / "chat_templates"
    source = (folder / f"{template}.jinja").read_text(encoding="utf-8")
    one = ChatTemplate(source, tokens={"bos_token": "<s>", "eos_token": "</s>"})
    with pytest.raises(ChatError, match="must be one of") as caught:
        one.render([*HELLO, {"role": "critic", "content": "bad"}])
    assert caught.value.param == "messages[1].role"


@pytest.mark.parametrize("role", ["", "a b", "x" * 33, "<|im_end|>", "critic\n", 7, None])
def test_what_is_no_name_of_a_role(role: Any) -> None:
    with pytest.raises(ChatError, match="must be one of"):
        ChatTemplate(CHATML).render([*HELLO, {"role": role, "content": "bad"}])


def test_what_is_remembered_of_roles_is_bounded() -> None:
    one = ChatTemplate(CHATML)
    for index in range(200):
        one.render([*HELLO, {"role": f"r{index}", "content": "x"}])
    assert len(one._further_roles) == 64
