"""Tables on a terminal of 80 and of 120 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from resolute.clock import SystemClock
from resolute_cli.experiment_tables import experiment_columns
from resolute_cli.render import Renderer, shown_cell
from resolute_cli.terminal_table import draw

UUID = "7cf950f3-8a33-4145-af4f-475668e15eca"
ALLOCATION = f"1.{UUID}.1"

TASKS = (
    (
        "Task ID",
        "Allocation ID",
        "Name",
        "Slots Needed",
        "Registered Time",
        "Agent",
        "Priority",
        "Resource Pool",
        "Ports",
    ),
    [
        (
            f"1.{UUID}",
            ALLOCATION,
            "a name of several words",
            2,
            "2024-05-01T12:00:00Z",
            "default-1-91da9f23",
            42,
            "default",
            "",
        )
    ],
)
CHECKPOINTS = (
    ("Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources", "Size"),
    [(1, 40, "COMPLETED", 0.0255133333, UUID, ["code/", "w.txt"], "1.2KB")],
)
EXPERIMENTS = (
    ("ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended", "Resource Pool"),
    [(12, "determined", "digits", None, "COMPLETED", "100.0%", datetime(2024, 5, 1, tzinfo=UTC), None, "default")],
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("columns", "rows"), [TASKS, CHECKPOINTS, EXPERIMENTS])
def test_no_line_is_wider_than_the_terminal_and_no_id_is_broken(
    monkeypatch: pytest.MonkeyPatch, width: int, columns: tuple[str, ...], rows: list[tuple[object, ...]]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    Renderer(out, out, color=False).table(columns, rows, rows)
    text = out.getvalue()
    assert max(map(cell_len, text.splitlines())) <= width
    titles = text[: text.index("─")] + text[text.index("─") :].partition("Not shown")[2]
    filled = [column for i, column in enumerate(columns) if any(row[i] not in (None, "") for row in rows)]
    assert all(word in titles for column in filled for word in column.split()), "shown, or named as not shown"
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if isinstance(cell, str) and UUID in cell:
                assert cell in text or column in text.partition("Not shown")[2]


def test_a_pipe_gets_every_column_whatever_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    Renderer(out, out).table(*TASKS, TASKS[1])
    head, _, row = out.getvalue().splitlines()
    assert [title.strip() for title in head.split("|")] == list(TASKS[0])
    assert f"1.{UUID}" in row and ALLOCATION in row and "2024-05-01T12:00:00Z" in row


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime(2025, 12, 31, 4, 59, 55, tzinfo=UTC), "04:59:55"),
        (datetime(2025, 11, 21, 4, 59, 55, tzinfo=UTC), "11-21 04:59"),
        (datetime(2024, 11, 21, 4, 59, 55, tzinfo=UTC), "2024-11-21"),
        ("2025-11-21T04:59:55.778512Z", "11-21 04:59"),
        (0.025513333333, "0.0255133"),
        (None, ""),
        ("2025-11", "2025-11"),
    ],
)
def test_dates_and_numbers_are_short_on_a_terminal(value: object, shown: str) -> None:
    assert shown_cell(value, datetime(2025, 12, 31, 12, tzinfo=UTC)) == shown


@given(
    st.lists(st.lists(st.text("ab é漢 -", max_size=60), min_size=3, max_size=3), max_size=4),
    st.integers(min_value=30, max_value=130),
)
def test_any_table_fits(rows: list[list[str]], width: int) -> None:
    text = draw(("Some Title", "Second", "H-Params"), rows, width, bold=False)
    assert all(cell_len(line) <= max(width, 48) for line in text.splitlines())


README = Path(__file__).parents[3] / "README.md"


def sample(command: str) -> list[str]:
    """What the README shows below a command, up to the next one."""
    after = README.read_text(encoding="utf-8").split(f"$ {command}\n", 1)[1]
    return after.split("```", 1)[0].split("$ det", 1)[0].rstrip("\n").split("\n")


def test_the_readme_shows_what_a_terminal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples are drawn again from their values by the code that draws them on a terminal."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime(2026, 11, 24, 12, tzinfo=UTC))

    def drawn(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> list[str]:
        out = Terminal()
        Renderer(out, out, color=False).table(columns, rows, rows, title=title)
        return out.getvalue().rstrip("\n").split("\n")

    began, ended = (datetime(2026, 11, 24, 9, minute, second, tzinfo=UTC) for minute, second in ((52, 31), (53, 4)))
    row = (1, "determined", "digits", None, "COMPLETED", "100.0%", began, ended, "default")
    assert sample("det experiment list") == drawn(experiment_columns(show_project=False, show_archived=False), [row])
    spent = ("42.6s", "18.3s", "13.7s", "0.2s", "0.0s", "10.3s", "0.014186", 0)
    shares = (None, "43.1%", "32.3%", "0.5%", "0.0%", "24.2%", None, None)
    rows = [("default-1-286b40e5", "default", 1, *spent), ("total", None, None, *spent), ("share", None, None, *shares)]
    titles = ("Instance", "Resource Pool", "Slots", "Paid", "Useful", "Starting", "Checkpointing", "Lost", "Idle")
    text = "Slot-seconds by purpose"
    assert sample("det ledger") == drawn((*titles, "Cost", "Steps Lost"), rows, text)
