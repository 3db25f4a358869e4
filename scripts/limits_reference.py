"""Writes the tables of `docs/limits.md` from the constants themselves: value, the docstring below each, and its test.

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

API = "master/resolute_master/api/http/limits.py"
SUBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "connections": {
        API: (
            "MAX_CONNECTIONS",
            "SPARE_FILES",
            "HANDSHAKE_S",
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
        API: (
            "MAX_REQUESTS_PER_USER",
            "MAX_REQUESTS_PER_CONTAINER",
            "MAX_PUBLIC_REQUESTS",
            "MAX_PUBLIC_REQUESTS_PER_ADDRESS",
            "MAX_FIRST_PUBLIC_REQUESTS",
            "FAILED_LOGINS",
            "FAILED_LOGINS_OF_ADDRESS",
            "FAILED_LOGINS_OF_USER",
            "FAILED_LOGINS_ATTACKED",
            "FIRST_LOGIN_PAUSE_S",
            "LONGEST_LOGIN_PAUSE_S",
            "FORGET_FAILURES_S",
            "REMEMBERED_LOGINS",
            "RETRY_AFTER_S",
            "UNAVAILABLE_RETRY_S",
        ),
        "master/resolute_master/api/auth/authenticate.py": ("CONCURRENT_HASHES",),
        "master/resolute_master/api/resources/allocations.py": ("MAX_POLL_S",),
        "master/resolute_master/api/barriers.py": ("BARRIER_LIMIT_S",),
        "master/resolute_master/engine/engine.py": ("INBOX_LIMIT",),
    },
    "bodies": {
        API: (
            "MAX_UPLOAD_BYTES",
            "MAX_BODY_BYTES",
            "MAX_PUBLIC_BODY_BYTES",
            "MAX_UNREAD_PUBLIC_BODIES",
            "MAX_BODIES_BYTES",
            "MAX_BODIES_BYTES_PER_CALLER",
            "LARGE_BODY_BYTES",
            "BODY_WAIT_S",
            "BODY_FIRST_S",
            "PUBLIC_BODY_FIRST_S",
            "BODY_BYTES_PER_S",
            "MAX_JSON_VALUES",
            "MAX_JSON_DEPTH",
            "MAX_FILES",
            "MAX_PATH_BYTES",
        ),
        "master/resolute_master/api/submission/context_archive.py": ("MAX_CONTEXT_BYTES",),
        "harness/resolute/launch/context_dir.py": ("MAX_UNPACKED_BYTES",),
    },
    "lists": {
        API: (
            "MAX_PAGE_ROWS",
            "MAX_LOG_TAIL",
            "MAX_TRIALS_PER_STREAM",
            "MAX_DATAPOINTS",
            "MAX_METRICS_OF_SERIES",
            "MAX_SAMPLED_TRIALS",
            "MAX_STREAM_PERIOD_S",
        ),
        "master/resolute_master/api/resources/extensions.py": ("MAX_DECISIONS",),
    },
    "simulations": {
        "master/resolute_sim/twin/advisor.py": ("ADVICE_S",),
        "master/resolute_sim/twin/advisor_process.py": ("ADVICE_CPU_S", "ADVICE_MEMORY_BYTES"),
        "master/resolute_master/forecast/history.py": ("HISTORY_DAYS", "MOST_ATTEMPTS"),
        "master/resolute_master/forecast/estimate.py": ("HEAD", "DECISIONS"),
    },
    "logs": {
        "harness/resolute/wire/agent_link.py": ("LOG_BATCH_LINES", "LOG_BATCHES_IN_FLIGHT"),
        "agent_image/resolute_agent/logs.py": ("MAX_LINE_BYTES", "BATCH_BYTES", "PENDING_BYTES"),
        "agent_image/resolute_agent/supervisor.py": ("MAX_UNSTORED_BYTES",),
        "agent_image/resolute_agent/runtimes/disk_space.py": ("FREED_AT_ONCE_BYTES",),
        API: ("MAX_LOG_LINES_PER_POST", "MAX_LINE_LENGTH", "MAX_SEARCH_LENGTH"),
        "master/resolute_master/store/listing.py": ("SEARCH_S",),
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
            "MAX_WORD_BYTES",
            "MAX_NAME_LENGTH",
            "MAX_DESCRIPTION_LENGTH",
            "MAX_NOTES_LENGTH",
            "MAX_LABEL_LENGTH",
            "MAX_TRIALS",
            "MAX_TRIALS_AT_ONCE",
            "MAX_GROUP_LENGTH",
            "MAX_METRIC_NAMES",
            "MAX_METRIC_NAME_LENGTH",
        ),
        "harness/resolute/config/durations.py": ("MAX_DURATION_HOURS",),
        "harness/resolute/config/log_policies.py": ("MAX_LOG_POLICIES",),
        "harness/resolute/config/patterns.py": ("MAX_PATTERN_SIZE",),
        "master/resolute_master/lifecycle/experiments.py": ("MAX_LABELS",),
        "master/resolute_master/lifecycle/workspaces.py": ("MAX_WORKSPACE_NAME_LENGTH", "MAX_PROJECT_KEY_LENGTH"),
        "master/resolute_master/lifecycle/projects.py": ("MAX_PROJECT_NOTES", "MAX_PROJECT_NOTES_CHARACTERS"),
        "master/resolute_master/lifecycle/user_settings.py": ("MAX_PINS",),
        "harness/resolute/config/yaml_text.py": ("MAX_VALUES", "MAX_DEPTH"),
        "harness/resolute/wire/times.py": ("FIRST_YEAR", "LAST_YEAR"),
    },
}
"""Which limits each table of the page has, by the file that they are in."""

HELD_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "integration/agent/test_link_frames.py": {
        "test_the_master_reads_frames_up_to_the_limit": ("MAX_FRAME_BYTES",),
    },
    "integration/api/test_api_limits.py": {
        "test_a_master_takes_as_many_connections_as_it_may_open_files": (
            "MAX_CONNECTIONS",
            "SPARE_FILES",
        ),
        "test_heads_have_a_limit_for_their_first_line_and_for_each_field": (
            "MAX_REQUEST_LINE_BYTES",
            "MAX_HEADER_BYTES",
        ),
        "test_without_other_orders_the_documented_limits_hold": (
            "MAX_REQUESTS_PER_USER",
            "MAX_REQUESTS_PER_CONTAINER",
        ),
        "test_addresses_share_the_public_places_and_each_has_a_first": (
            "MAX_PUBLIC_REQUESTS",
            "MAX_PUBLIC_REQUESTS_PER_ADDRESS",
            "MAX_FIRST_PUBLIC_REQUESTS",
        ),
        "test_a_caller_who_holds_a_share_of_the_bodies_does_not_keep_the_others_waiting": (
            "MAX_BODIES_BYTES_PER_CALLER",
        ),
        "test_one_connection_more_than_may_be_is_told_to_come_again": ("RETRY_AFTER_S",),
        "test_two_of_the_largest_uploads_are_held_at_once": ("MAX_BODIES_BYTES",),
        "test_only_calls_that_carry_files_take_large_bodies": ("MAX_UPLOAD_BYTES",),
        "test_the_body_of_an_ordinary_call_and_of_one_without_a_token_have_limits_of_their_own": (
            "MAX_BODY_BYTES",
            "MAX_PUBLIC_BODY_BYTES",
        ),
        "test_large_bodies_wait_for_their_turn_in_order_and_not_for_ever": ("LARGE_BODY_BYTES",),
        "test_bodies_that_are_built_to_be_large_are_refused": (
            "MAX_JSON_VALUES",
            "MAX_JSON_DEPTH",
        ),
        "test_lines_of_a_post_and_lines_from_the_end": (
            "MAX_LOG_TAIL",
            "MAX_LOG_LINES_PER_POST",
            "MAX_SEARCH_LENGTH",
        ),
        "test_names_of_metrics_and_how_many_there_are": (
            "MAX_TRIALS_PER_STREAM",
            "MAX_GROUP_LENGTH",
            "MAX_METRIC_NAMES",
            "MAX_METRIC_NAME_LENGTH",
        ),
        "test_a_list_of_decisions_has_the_newest_of_so_many": ("MAX_DECISIONS",),
        "test_a_posted_line_that_is_too_long_goes_on_as_the_next": ("MAX_LINE_LENGTH",),
    },
    "integration/api/test_api_outage.py": {
        "test_changes_are_refused_at_once_and_those_of_tasks_wait": ("UNAVAILABLE_RETRY_S",),
    },
    "integration/api/test_api_pool_advice.py": {
        "test_the_newest_attempts_are_played_and_no_more": ("MOST_ATTEMPTS",),
    },
    "integration/api/test_api_series.py": {
        "test_what_cannot_be_compared_is_refused_by_name": ("MAX_DATAPOINTS", "MAX_METRICS_OF_SERIES"),
        "test_streams_refuse_by_name_what_they_cannot_tell": ("MAX_SAMPLED_TRIALS", "MAX_STREAM_PERIOD_S"),
    },
    "integration/api/test_api_places.py": {
        "test_notes_are_replaced_and_appended": ("MAX_PROJECT_NOTES", "MAX_PROJECT_NOTES_CHARACTERS"),
        "test_a_pin_is_its_user_s_own": ("MAX_PINS",),
    },
    "integration/api/test_api_workspaces.py": {
        "test_projects_have_names_of_their_workspace_and_keys_of_the_cluster": (
            "MAX_WORKSPACE_NAME_LENGTH",
            "MAX_PROJECT_KEY_LENGTH",
        ),
    },
    "integration/harness/test_harness_transport.py": {
        "test_without_another_order_so_many_reports_may_wait": ("QUEUE_LIMIT",),
    },
    "integration/store/test_sqlite_store.py": {
        "test_a_search_that_takes_too_long_is_ended_in_words": ("SEARCH_S",),
    },
    "unit/agent/test_agent_core.py": {
        "test_containers_share_each_batch_evenly": ("LOG_BATCH_LINES",),
        "test_output_is_not_read_further_than_the_master_stores": ("LOG_BATCHES_IN_FLIGHT",),
    },
    "unit/agent/test_agent_log_limits.py": {
        "test_a_batch_is_closed_at_so_many_bytes": ("BATCH_BYTES",),
        "test_of_one_container_so_much_is_read_as_may_be_held": ("PENDING_BYTES",),
    },
    "unit/agent/test_agent_logs.py": {
        "test_a_long_line_goes_on_as_the_next_one": ("MAX_LINE_BYTES",),
    },
    "unit/agent/test_agent_spool.py": {
        "test_without_another_order_so_much_may_be_unstored": ("MAX_UNSTORED_BYTES",),
        "test_stored_output_takes_no_space_and_keeps_its_offsets": ("FREED_AT_ONCE_BYTES",),
    },
    "unit/agents/test_hub.py": {
        "test_a_connection_that_does_not_say_who_it_is_is_closed": ("HELLO_S",),
        "test_a_silent_agent_is_disconnected_and_a_speaking_one_is_answered": ("SILENT_HEARTBEATS",),
    },
    "unit/agents/test_link_timeout.py": {
        "test_a_peer_that_takes_nothing_is_gone_at_the_limit_and_a_slow_one_is_not": ("SEND_TIMEOUT_S",),
    },
    "unit/api/test_api_context_archive.py": {
        "test_too_much_is_refused_with_the_limit": ("MAX_CONTEXT_BYTES",),
    },
    "integration/tls/test_master_tls.py": {
        "test_a_handshake_that_is_never_finished_is_given_up": ("HANDSHAKE_S",),
    },
    "integration/api/test_api_unauthenticated.py": {
        "test_so_many_bodies_are_waited_for_at_once": ("MAX_UNREAD_PUBLIC_BODIES",),
    },
    "unit/api/test_login_attempts.py": {
        "test_the_pause_doubles_up_to_a_minute_and_is_forgotten": (
            "FAILED_LOGINS",
            "FIRST_LOGIN_PAUSE_S",
            "LONGEST_LOGIN_PAUSE_S",
            "FORGET_FAILURES_S",
        ),
        "test_an_address_that_tries_many_names_waits_but_for_those_who_have_been_in": ("FAILED_LOGINS_OF_ADDRESS",),
        "test_a_user_who_is_attacked_from_everywhere_still_gets_in_from_a_clean_address": (
            "FAILED_LOGINS_OF_USER",
            "FAILED_LOGINS_ATTACKED",
        ),
        "test_what_is_remembered_has_an_end": ("REMEMBERED_LOGINS",),
    },
    "unit/api/test_api_limits_of_time.py": {
        "test_the_body_of_a_call_without_a_token_is_waited_for_so_long": ("PUBLIC_BODY_FIRST_S",),
        "test_a_connection_without_a_head_is_closed_at_the_next_look_after_its_time": ("HEAD_S",),
        "test_a_connection_between_requests_is_kept_so_long": ("IDLE_S",),
        "test_a_caller_who_takes_nothing_is_cut_off_at_the_next_look_after_its_time": ("UNREAD_S",),
        "test_a_preemption_poll_is_held_as_long_as_it_asks_for_and_no_longer_than_the_limit": ("MAX_POLL_S",),
        "test_members_of_a_gang_are_waited_for_so_long": ("BARRIER_LIMIT_S",),
        "test_a_large_body_waits_so_long_for_its_turn": ("BODY_WAIT_S",),
        "test_a_body_has_its_time_and_a_second_more_for_so_many_bytes": (
            "BODY_FIRST_S",
            "BODY_BYTES_PER_S",
        ),
    },
    "unit/api/test_api_limits_of_values.py": {
        "test_the_edge": (
            "MAX_FILES",
            "MAX_PATH_BYTES",
            "MAX_CONFIG_BYTES",
            "MAX_WORD_BYTES",
            "MAX_NAME_LENGTH",
            "MAX_DESCRIPTION_LENGTH",
            "MAX_NOTES_LENGTH",
            "MAX_LABELS",
            "MAX_LABEL_LENGTH",
            "MAX_TRIALS",
            "MAX_TRIALS_AT_ONCE",
        ),
        "test_a_page_has_so_many_rows_and_says_where_the_next_begins": ("MAX_PAGE_ROWS",),
    },
    "unit/api/test_api_passwords.py": {
        "test_so_many_are_hashed_at_once_and_the_others_wait_in_line": ("CONCURRENT_HASHES",),
    },
    "unit/config/test_config_durations.py": {
        "test_the_longest_duration_is_taken_and_no_longer_one": ("MAX_DURATION_HOURS",),
    },
    "unit/config/test_config_log_policies.py": {
        "test_too_many_policies_are_refused": ("MAX_LOG_POLICIES",),
        "test_what_re2_does_not_take_or_what_would_take_long_is_refused": ("MAX_PATTERN_SIZE",),
    },
    "unit/config/test_config_yaml_text.py": {
        "test_a_short_text_has_so_many_values_after_its_aliases_are_expanded": ("MAX_VALUES",),
        "test_deep_nesting_is_refused": ("MAX_DEPTH",),
    },
    "unit/engine/test_engine.py": {
        "test_a_full_inbox_refuses_the_next_command_and_keeps_all_it_took": ("INBOX_LIMIT",),
    },
    "unit/engine/test_garbage.py": {
        "test_it_holds_in_a_process_of_its_own": (
            "LEAST_GROWTH",
            "ASKED_AFTER",
        ),
    },
    "unit/forecast/test_estimate.py": {
        "test_the_work_is_bounded": ("DECISIONS",),
        "test_of_a_long_queue_the_head_is_played_and_the_rest_reckoned": ("HEAD",),
    },
    "unit/forecast/test_history.py": {
        "test_only_the_last_days_count_and_what_ran_into_them_counts_from_their_beginning": ("HISTORY_DAYS",),
    },
    "unit/harness/test_harness_core.py": {
        "test_while_the_master_is_away_so_many_marks_are_kept_the_newest": ("MARKS_LIMIT",),
    },
    "unit/harness/test_harness_launch.py": {
        "test_a_context_is_no_larger_unpacked_than_model_code_is": ("MAX_UNPACKED_BYTES",),
    },
    "unit/sim/test_twin_advice.py": {
        "test_a_simulation_that_takes_too_long_is_ended": ("ADVICE_S",),
        "test_the_process_has_limits_of_its_own": ("ADVICE_CPU_S", "ADVICE_MEMORY_BYTES"),
    },
    "unit/store/test_batched_writer.py": {
        "test_a_batch_ends_at_the_limit_of_items_and_never_inside_a_call": ("MAX_BATCH_ITEMS",),
        "test_a_large_batch_does_not_wait_for_the_last_to_be_known": ("SMALL_BATCH_ITEMS",),
        "test_a_batch_ends_at_the_limit_of_bytes": ("MAX_BATCH_BYTES",),
        "test_who_has_nothing_unstored_need_not_wait_for_those_who_have_much": ("MAX_UNSTORED_ITEMS",),
        "test_the_reserve_for_newcomers_ends_too": ("RESERVED_ITEMS",),
    },
    "unit/store/test_recent_code.py": {
        "test_what_is_large_is_left_to_who_asks": ("MAX_CODE_CHARACTERS",),
    },
    "unit/wire/test_wire_times.py": {
        "test_the_same_moment_in_utc": ("FIRST_YEAR", "LAST_YEAR"),
    },
}
"""Which limits each test holds at their edge, by the file below `tests` that it is in."""


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
    tests = {limit: file for file, held in HELD_BY.items() for limits in held.values() for limit in limits}
    rows = ["| limit | value | | held by |", "|---|---|---|---|"]
    for file, names in SUBJECTS[subject].items():
        known = limits_of(file)
        for name in names:
            if name not in known or not known[name].reason:
                raise SystemExit(f"{file}: there is no limit {name} with a sentence below it")
            if name not in tests:
                raise SystemExit(f"{file}: {name} is in no test of HELD_BY; write one that meets it at its edge")
            rows.append(f"| `{name}` | {known[name].value} | {known[name].reason} | `{tests[name]}` |")
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
