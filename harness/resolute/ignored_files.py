"""The files that an upload of code excludes, for each uploader: the command line a directory, the master a folder that a browser
sends."""

from __future__ import annotations

import re

IGNORE_FILE = ".detignore"

BUILT_IN_RULES = (
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    "terraform",
    "terraform_data",
    "terraform.tfstate*",
    "terraform.tfvars*",
    ".terraform*",
    ".git/",
    ".vscode/",
    ".idea/",
    ".mypy_cache/",
    "/shared_fs",
)

BUILT_IN_PATTERN = re.compile(
    r"(?:.+/)?"
    r"(?:(?:__pycache__|\.git|\.vscode|\.idea|\.mypy_cache)/.*"
    r"|(?:[^/]*\.py[co]|[^/]*\$py\.class|terraform|terraform_data|terraform\.tfstate[^/]*|terraform\.tfvars[^/]*|\.terraform[^/]*)(?:/.*)?)"
    r"|shared_fs(?:/.*)?",
    re.DOTALL,
)
"""`BUILT_IN_RULES` for `fullmatch`: a directory without rules of its own needs no library for them, whose import takes a
fifteenth of the time of a whole `det experiment create`."""
