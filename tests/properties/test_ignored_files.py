"""The built-in rules of uploads as one pattern: the same as the library of `.gitignore` makes of them."""

from __future__ import annotations

import pathspec
from hypothesis import given
from hypothesis import strategies as st

from resolute.ignored_files import BUILT_IN_PATTERN, BUILT_IN_RULES

NAMES = (
    "__pycache__", "a.pyc", "a.pyo", "a.py", ".pyc", "x$py.class", "terraform", "terraform_data", "terraform.tfstate",
    "terraform.tfstate.backup", "terraform.tfvars.json", "terraform.tf", ".terraform", ".terraform.lock.hcl", "my.terraform",
    ".git", ".gitignore", ".vscode", ".idea", ".mypy_cache", "shared_fs", "shared_fs2", "src", "a b", "terraform2", "d.pyc",
)  # fmt: skip

SPEC = pathspec.GitIgnoreSpec.from_lines(BUILT_IN_RULES)


@given(parts=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), directory=st.booleans())
def test_the_pattern_leaves_out_what_the_rules_leave_out(parts: list[str], directory: bool) -> None:
    path = "/".join(parts) + "/" * directory
    assert (BUILT_IN_PATTERN.fullmatch(path) is not None) == SPEC.match_file(path)


def test_each_rule_is_in_the_pattern() -> None:
    """For each rule, the pattern matches a path that only this rule excludes."""
    for rule in BUILT_IN_RULES:
        path = rule.strip("/").replace("*", "x").replace("[co]", "c") + ("/x" if rule.endswith("/") else "")
        assert BUILT_IN_PATTERN.fullmatch(path) is not None, rule
