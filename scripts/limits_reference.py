"""Writes the tables of `docs/limits.md` from the constants themselves: value, and the sentence that stands below each.

python scripts/limits_reference.py            # writes docs/limits.md
python scripts/limits_reference.py --check    # exit code 1 when it is not current
"""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "limits.md"

API = "master/resolute_master/api/limits.py"
SUBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "connections": {
        API: (
            "MAX_CONNECTIONS",
            "SPARE_FILES",
            "HEAD_S",
            "IDLE_S",
            "UNREAD_S",
            "MAX_REQUEST_LINE_BYTES",
            "MAX_HEADER_BYTES",
        ),
        "master/resolute_master/agents/session.py": ("HELLO_S", "SILENT_HEARTBEATS"),
        "master/resolute_master/agents/websocket.py": ("SEND_TIMEOUT_S",),
        "harness/resolute/wire/agent_link.py": ("MAX_FRAME_BYTES", "MAX_CODE_CHARACTERS"),
    },
    "garbage": {"master/resolute_master/garbage.py": ("LEAST_GROWTH", "ASKED_AFTER")},
    "requests": {
        API: ("MAX_REQUESTS_PER_USER", "MAX_REQUESTS_PER_CONTAINER", "MAX_PUBLIC_REQUESTS", "RETRY_AFTER_S"),
        "master/resolute_master/api/auth.py": ("CONCURRENT_HASHES",),
        "master/resolute_master/api/allocations.py": ("MAX_POLL_S",),
        "master/resolute_master/api/barriers.py": ("BARRIER_LIMIT_S",),
        "master/resolute_master/engine/engine.py": ("INBOX_LIMIT",),
    },
    "bodies": {
        API: (
            "MAX_UPLOAD_BYTES",
            "MAX_BODY_BYTES",
            "MAX_PUBLIC_BODY_BYTES",
            "MAX_BODIES_BYTES",
            "LARGE_BODY_BYTES",
            "BODY_WAIT_S",
            "BODY_FIRST_S",
            "BODY_BYTES_PER_S",
            "MAX_JSON_VALUES",
            "MAX_JSON_DEPTH",
            "MAX_FILES",
            "MAX_PATH_BYTES",
        ),
        "master/resolute_master/api/context_archive.py": ("MAX_CONTEXT_BYTES",),
        "harness/resolute/launch/context_dir.py": ("MAX_UNPACKED_BYTES",),
    },
    "lists": {
        API: ("MAX_PAGE_ROWS", "MAX_LOG_TAIL", "MAX_TRIALS_PER_STREAM"),
        "master/resolute_master/api/extensions.py": ("MAX_DECISIONS",),
    },
    "logs": {
        "harness/resolute/wire/agent_link.py": ("LOG_BATCH_LINES", "LOG_BATCHES_IN_FLIGHT"),
        "agent_image/resolute_agent/logs.py": ("MAX_LINE_BYTES", "BATCH_BYTES", "PENDING_BYTES"),
        "agent_image/resolute_agent/supervisor.py": ("MAX_UNSTORED_BYTES",),
        "agent_image/resolute_agent/runtimes/disk_space.py": ("FREED_AT_ONCE_BYTES",),
        API: ("MAX_LOG_LINES_PER_POST", "MAX_LINE_LENGTH", "MAX_SEARCH_LENGTH"),
        "master/resolute_master/store/writers.py": (
            "MAX_BATCH_ITEMS",
            "SMALL_BATCH_ITEMS",
            "MAX_BATCH_BYTES",
            "MAX_UNSTORED_ITEMS",
            "RESERVED_ITEMS",
        ),
        "harness/resolute/core/sender.py": ("QUEUE_LIMIT",),
        "harness/resolute/core/train.py": ("MARKS_LIMIT",),
    },
    "texts": {
        API: (
            "MAX_CONFIG_BYTES",
            "MAX_NAME_LENGTH",
            "MAX_DESCRIPTION_LENGTH",
            "MAX_NOTES_LENGTH",
            "MAX_LABELS",
            "MAX_LABEL_LENGTH",
            "MAX_TRIALS",
            "MAX_TRIALS_AT_ONCE",
            "MAX_GROUP_LENGTH",
            "MAX_METRIC_NAMES",
            "MAX_METRIC_NAME_LENGTH",
        ),
        "harness/resolute/config/log_policies.py": ("MAX_LOG_POLICIES", "MAX_PATTERN_SIZE"),
        "master/resolute_master/lifecycle/workspaces.py": ("MAX_WORKSPACE_NAME_LENGTH", "MAX_PROJECT_KEY_LENGTH"),
        "harness/resolute/config/yaml_text.py": ("MAX_VALUES", "MAX_DEPTH"),
    },
}
"""Which limits each table of the page has, by the file that they are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One constant: its value as it is written, and why."""

    name: str
    file: str
    value: str
    reason: str


def limits_of(file: str) -> dict[str, Limit]:
    """Every upper-case constant of a file that has a sentence below it, or behind it."""
    text = (ROOT / file).read_text()
    lines = text.splitlines()
    body = ast.parse(text).body
    module = importlib.import_module(file.partition("/")[2].removesuffix(".py").replace("/", "."))
    found: dict[str, Limit] = {}
    for position, node in enumerate(body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        value = getattr(module, name)
        if name.isupper() and isinstance(value, int | float):
            reason = _sentence(body[position + 1 : position + 3]) or lines[node.lineno - 1].partition("# ")[2]
            found[name] = Limit(name=name, file=file, value=_shown(name, value), reason=" ".join(reason.split()))
    return found


def _sentence(following: list[ast.stmt]) -> str:
    """The string below an assignment; two that belong together share one."""
    for node in following:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
        if not isinstance(node, ast.Assign):
            break
    return ""


def _shown(name: str, value: float) -> str:
    if name.endswith("_S") and not name.endswith("_PER_S"):
        return f"{value:g} s"
    if "BYTES" in name:
        unit = "/s" if name.endswith("_PER_S") else ""
        for size, word in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value % size == 0:
                return f"{value // size:,.0f} {word}{unit}"
    return f"{value:,}"


def table(subject: str) -> str:
    rows = ["| limit | value | |", "|---|---|---|"]
    for file, names in SUBJECTS[subject].items():
        known = limits_of(file)
        for name in names:
            if name not in known or not known[name].reason:
                raise SystemExit(f"{file}: there is no limit {name} with a sentence below it")
            rows.append(f"| `{name}` | {known[name].value} | {known[name].reason} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with current tables, each between `<!-- limits: name -->` and `<!-- end -->`."""
    for subject in SUBJECTS:
        start, end = f"<!-- limits: {subject} -->\n", "<!-- end -->"
        before, found, rest = text.partition(start)
        if not found or end not in rest:
            raise SystemExit(f"{PAGE}: has no place for the table '{subject}'")
        text = before + start + table(subject) + "\n" + rest[rest.index(end) :]
    return text


def main(arguments: list[str]) -> int:
    text = PAGE.read_text()
    current = page(text)
    if arguments == ["--check"]:
        return int(current != text)
    PAGE.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
