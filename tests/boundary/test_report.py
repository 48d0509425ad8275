"""Reports on grammars: limits, errors, the GIL, the end of the engine."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from llgtrt import _native
from support.core import Core, engine_config

SPEC = _native.GrammarSpec.regex("[a-z]+")


def test_the_engine_and_the_checker_agree() -> None:
    core = Core(engine_config())
    reports = []
    for reporter in (core.engine, _native.GrammarChecker("{}")):
        report: dict[str, Any] = json.loads(reporter.report(SPEC, instances=['"ab"', '"1"']))
        del report["compile_ms"]
        reports.append(report)
    assert reports[0] == reports[1]
    assert [verdict["accepted"] for verdict in reports[0]["instances"]] == [True, False]
    core.engine.shutdown()


def test_what_is_wrong_with_the_call_raises() -> None:
    checker = _native.GrammarChecker("{}")
    with pytest.raises(ValueError, match="maybe"):
        checker.report(SPEC, residual="maybe")  # type: ignore[arg-type]
    for instances, param in ((["{"], "instances[0]"), (["1"] * 1000, "instances")):
        with pytest.raises(_native.InvalidRequestError) as caught:
            checker.report(SPEC, instances=instances)
        assert caught.value.param == param


def test_a_bad_configuration_or_tokenizer_raises(tmp_path: Path) -> None:
    for arguments in (("{",), ('{"typo": 1}',), ("{}", str(tmp_path))):
        with pytest.raises(_native.ConfigurationError):
            _native.GrammarChecker(*arguments)


def test_reports_wait_without_the_gil() -> None:
    """One slot and one place to wait: others find them taken only if all calls are in progress at once."""
    members = ",".join(f'"p{i}":{{"type":"integer"}}' for i in range(4900))
    schema = _native.GrammarSpec.json_schema(f'{{"type":"object","properties":{{{members}}}}}')
    checker = _native.GrammarChecker('{"compile_slots": 1, "compile_queue_size": 1}')
    start = threading.Barrier(4)
    outcomes: list[str] = []

    def report() -> None:
        start.wait(20)
        try:
            checker.report(schema)
            outcomes.append("report")
        except _native.OverloadedError:
            outcomes.append("full")

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) == {"report", "full"}


def test_no_report_after_the_end() -> None:
    core = Core(engine_config())
    core.engine.shutdown()
    with pytest.raises(_native.ShuttingDownError):
        core.engine.report(SPEC)
