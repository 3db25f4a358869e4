"""How far a training is, in words, and the line that stays below its log."""

from __future__ import annotations

import io

import pytest

from resolute_cli.render import Renderer
from resolute_cli.training_progress import Sample, length_in_steps, progress_text


@pytest.mark.parametrize(
    ("samples", "length", "told"),
    [
        ([Sample(0, 0, 0)], 200, "running, no step yet"),
        ([Sample(0, 20, 0)], 200, "step 20 of 200, loss 0.5"),
        ([Sample(0, 20, 0), Sample(10, 120, 0)], 200, "step 120 of 200, loss 0.5, 10 steps/s, 8.0s left"),
        ([Sample(0, 20, 0.1), Sample(10, 120, 0.5)], None, "step 120, loss 0.5, 10 steps/s, 12.5s left"),
        ([Sample(0, 20, 0.0), Sample(10, 120, 0.0)], None, "step 120, loss 0.5, 10 steps/s"),
        ([Sample(0, 120, 0), Sample(10, 120, 0)], 200, "step 120 of 200, loss 0.5"),
        # Waiting and starting is no training.
        (
            [Sample(0, 0, 0), Sample(50, 20, 0), Sample(60, 120, 0)],
            200,
            "step 120 of 200, loss 0.5, 10 steps/s, 8.0s left",
        ),
    ],
)
def test_step_metric_rate_and_what_is_left(samples: list[Sample], length: int | None, told: str) -> None:
    assert progress_text(samples, length=length, state="RUNNING", metric="loss 0.5") == told


@pytest.mark.parametrize(
    ("length", "steps"), [(200, 200), ({"batches": 7}, 7), ({"epochs": 3}, None), (None, None), (True, None)]
)
def test_the_length_is_known_where_it_is_in_steps(length: object, steps: int | None) -> None:
    assert length_in_steps({"searcher": {"max_length": length}}) == steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_pinned_line_stays_below_what_scrolls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    render = Renderer(stream, stream)
    assert render.can_pin
    render.pin("step 1")
    render.raw("a line\n")
    render.pin("step 2, which is far too long for it")
    render.pin("")
    assert stream.getvalue() == "step 1\r\x1b[Ka line\nstep 1\r\x1b[Kstep 2, which is fa\r\x1b[K"


def test_nothing_is_pinned_where_output_is_read_by_a_program() -> None:
    assert not Renderer(io.StringIO(), Terminal()).can_pin
