"""Which failures are taken for the same one, and what is said of them."""

from __future__ import annotations

import pytest

from resolute_master.domain.allocation import AllocationExit
from resolute_master.domain.trial import Failure
from resolute_master.lifecycle.failures import hint, next_failure


def an_exit(error: str, code: int = 1, reason: str = "rank 0 on a exited with code 1") -> AllocationExit:
    return AllocationExit(reason=reason, code=code, error=error)


@pytest.mark.parametrize(
    ("first", "second", "times"),
    [
        (an_exit("T\nValueError: x"), an_exit("T\nValueError: x"), 2),
        (an_exit("T\nValueError: x"), an_exit("T\nValueError: x", reason="rank 0 on b exited with code 1"), 2),
        (an_exit("T\nE: <a at 0x7f01>, 12 MiB"), an_exit("T\nE: <a at 0x6faa>, 15 MiB"), 2),
        (an_exit("T\nValueError: x"), an_exit("T\nValueError: y"), 1),
        (an_exit("  line 4\nE: x"), an_exit("  line 5\nE: x"), 1),
        (an_exit("", code=1), an_exit("", code=2), 1),
    ],
)
def test_failures_in_a_row_are_counted_while_they_are_the_same(
    first: AllocationExit, second: AllocationExit, times: int
) -> None:
    before = next_failure(None, first)
    assert before.times == 1
    assert next_failure(before, second).times == times


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Failure(reason="r", error="T\nModuleNotFoundError: No module named 'timm'", code=1), "'timm' is not there"),
        (
            Failure(reason="r", error="python3: can't open file '/x/y.py': [Errno 2] No such", code=2),
            "directory that holds it",
        ),
        (Failure(reason="r", error="torch.OutOfMemoryError: CUDA out of memory.", code=1), "batch"),
        (Failure(reason="r", code=137), "too little memory"),
        (Failure(reason="r", error="ValueError: x", code=1, times=2), "same error again"),
        (Failure(reason="r", error="ValueError: x", code=1), ""),
    ],
)
def test_a_failure_hints_at_its_cause(failure: Failure, told: str) -> None:
    assert (told in hint(failure)) if told else hint(failure) == ""
