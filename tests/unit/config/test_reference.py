"""The reference page is generated; this fails when the models have changed since."""

from pathlib import Path

from llgtrt.config.reference import PAGE, reference


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / PAGE
    assert page.read_text(encoding="utf-8") == reference(), "run: python -m llgtrt.config.reference"
