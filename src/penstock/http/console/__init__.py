"""The console: pages for people at /console/, made of the files beside this one and of the public HTTP API.

There is no build step. `pages/` has one file a page, put into `shell.html` when the server starts; `assets/` has the
style and the scripts, served under a path that changes with them, so that browsers may keep them for ever.
"""

from penstock.http.console.pages import routes

__all__ = ["routes"]
