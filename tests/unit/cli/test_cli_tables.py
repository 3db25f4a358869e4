"""Tables on a terminal of 80 and of 120 columns."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

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
