"""Prints docs/settings.md."""

from penstock.base.settings import reference_markdown

print(reference_markdown(), end="")
