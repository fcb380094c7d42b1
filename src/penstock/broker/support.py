"""What this broker serves, as the table in the README: made from the router's list, so that it cannot be wrong.

`python -m penstock.broker.support` writes it into README.md, between its two markers.
"""

import sys
from collections.abc import Callable

from penstock.broker.router import APIS

BEGIN = "<!-- served APIs: made by `make docs` -->"
END = "<!-- end of served APIs -->"


def support_table() -> str:
    rows = ["| key | API | versions | notes |", "|--:|---|---|---|"]
    for api in APIS:
        versions = f"{api.version_min}-{api.version_max}" if api.version_max else "0"
        rows.append(f"| {api.key} | {api.name} | {versions} | {_missing(api)} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with the table between its markers. Raises ValueError where they are missing."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"there is no place for the table: the page needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{support_table()}\n{END}{after}"


def _missing(api: object) -> str:
    """What the handler's own header says is not here yet."""
    handle: Callable[..., object] = getattr(api, "handle", None) or getattr(api, "handle_frame")  # noqa: B009
    header = sys.modules[handle.__module__].__doc__ or ""
    _, found, rest = header.partition("Not here yet: ")
    return "not yet: " + " ".join(rest.partition(".")[0].split()) if found else ""


if __name__ == "__main__":
    with open("README.md", encoding="utf-8") as file:
        text = file.read()
    with open("README.md", "w", encoding="utf-8") as file:
        file.write(with_table(text))
