"""What an upload of code leaves out, whoever packs it: the command line a directory, the master a folder that a browser sends."""

from __future__ import annotations

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
