from pathlib import Path

from penstock.base.settings import reference_markdown


def test_the_settings_page_is_what_the_table_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == reference_markdown(), (
        "docs/settings.md is out of date; write it anew: .venv/bin/python -m penstock.base.settings > docs/settings.md"
    )
