"""The house is tidy: every room says what it is for, every handler what it serves, no module outgrows a reader."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from penstock.broker.router import APIS
from penstock.broker.support import with_table
from penstock.protocol import messages

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
HANDLERS = sorted((SOURCE / "broker" / "handlers").glob("api_*.py"))
LINES_MAX = 500
FUNCTION_LINES_MAX = 70


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is_for_and_stays_readable(module: Path) -> None:
    text = module.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), f"{module} has no docstring"
    assert len(text.splitlines()) <= LINES_MAX, f"{module} asks for a seam"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            # From the body on: a command's options stand in its signature.
            length = node.end_lineno - node.body[0].lineno
            assert length <= FUNCTION_LINES_MAX, f"{module}: {node.name} has {length} lines"


def test_every_handler_is_served_and_names_its_versions() -> None:
    by_file = {f"api_{api.key:02d}_": api for api in APIS}
    for handler in HANDLERS:
        api = by_file[re.match(r"api_\d+_", handler.name).group()]  # type: ignore[union-attr]
        first_line = (ast.get_docstring(ast.parse(handler.read_text())) or "").splitlines()[0]
        versions = f"versions {api.version_min}-{api.version_max}" if api.version_max else "version 0"
        assert first_line.startswith(f"{api.name} (key {api.key}), {versions}"), handler.name
    assert len(HANDLERS) == len(APIS)


def test_every_served_version_has_its_schema() -> None:
    for api in APIS:
        for version in range(api.version_min, api.version_max + 1):
            messages.request_entity(api.key, version)
            messages.response_entity(api.key, version)


def test_the_readme_lists_what_is_served() -> None:
    page = (ROOT / "README.md").read_text()
    assert with_table(page) == page, "the table in README.md is out of date: make docs"


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_nothing_is_committed_that_belongs_to_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    private = re.compile(r"/(?:root|home|work|tmp)/[a-z]|files\.pythonhosted|pypi\.org|repo\.maven")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if (
            path == Path(__file__)
            or not path.exists()
            or path.suffix not in {".py", ".md", ".toml", ".lock", "", ".txt"}
        ):
            continue
        found = private.search(path.read_text(errors="replace"))
        assert found is None, f"{name} names {found.group()}" if found else ""
