"""A part of the master that is not installed is named, together with what brings it."""

from __future__ import annotations

import pytest

from resolute.errors import FailedPrecondition
from resolute_cli.loading import loading


def test_what_is_missing_and_how_to_get_it_are_said() -> None:
    with pytest.raises(FailedPrecondition) as refused, loading("the simulator", "cli,master"):
        import a_distribution_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401
    assert str(refused.value) == (
        "the simulator cannot be loaded here (No module named 'a_distribution_that_nobody_has'); "
        "install the distribution with it: pip install 'resolute-ml[cli,master]'"
    )


def test_other_faults_pass() -> None:
    with pytest.raises(KeyError), loading("the simulator"):
        raise KeyError("x")
