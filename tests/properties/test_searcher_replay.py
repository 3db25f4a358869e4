"""The same seed and events give the same search, however often it is saved and loaded between."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resolute_master.searcher.base import (
    Create,
    ExitReason,
    ProgressReported,
    SearchAction,
    SearchEvent,
    Shutdown,
    State,
    TrialExited,
    ValidationCompleted,
)
from resolute_master.searcher.methods import make

SPACE = {
    "a": {"type": "int", "minval": 0, "maxval": 10**9},
    "b": {"c": {"type": "double", "minval": -1, "maxval": 1}, "d": {"type": "categorical", "vals": [1, 2, 3]}},
}
CONFIGS = st.one_of(
    st.just({"name": "single"}),
    st.builds(
        lambda trials, at_once: {"name": "random", "max_trials": trials, "max_concurrent_trials": at_once},
        st.integers(1, 12),
        st.integers(0, 5),
    ),
)
SCRIPTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.sampled_from([None, *ExitReason])), max_size=60)
Script = list[tuple[int, int, ExitReason | None]]


def play(config: dict[str, Any], seed: int, script: Script, *, reload: bool) -> list[tuple[SearchAction, ...]]:
    """Run a script of (kind of event, which trial, reason); the promises of every method are checked on the way."""
    method = make(config, SPACE)
    state: State
    state, actions = method.start(seed)
    history, known = [actions], [a.request_id for a in actions if isinstance(a, Create)]
    done, over, progress = set[str](), False, method.progress(state)
    for kind, which, reason in script:
        request_id = known[which % len(known)]
        event: SearchEvent = ProgressReported(request_id=request_id, progress=which / 20)
        if kind == 1:
            event = ValidationCompleted(request_id=request_id, metric=1.0, steps_completed=which)
        elif kind > 1:
            event = TrialExited(request_id=request_id, reason=reason)
        if reload:
            state = json.loads(json.dumps(state))
        before = json.dumps(state)
        after, actions = method.on(state, event)
        assert json.dumps(state) == before, "the state that was given is left as it is"
        state = after
        history.append(actions)
        assert not (over and actions), "nothing follows the end of a search"
        done |= {request_id} if kind > 1 else set()
        known += [a.request_id for a in actions if isinstance(a, Create)]
        over = over or any(isinstance(a, Shutdown) for a in actions)
        assert over or set(known) - done, "a search with nothing open is over"
        assert len(known) == len(set(known))
        assert 0.0 <= method.progress(state) <= 1.0
        if kind > 1 and reason is not ExitReason.INVALID_HPARAMS:
            assert method.progress(state) >= progress - 1e-9
        progress = method.progress(state)
        check_limits(config, len(known), len(set(known) - done))
    return history


def check_limits(config: dict[str, Any], asked_for: int, open_: int) -> None:
    if config["name"] == "single":
        assert asked_for == 1
    else:
        assert open_ <= (config["max_concurrent_trials"] or config["max_trials"])


@given(CONFIGS, st.integers(0, 2**32 - 1), SCRIPTS)
def test_the_same_seed_and_events_give_the_same_search(config: dict[str, Any], seed: int, script: Script) -> None:
    assert play(config, seed, script, reload=False) == play(config, seed, script, reload=True)


@given(st.integers(0, 2**32 - 2))
def test_another_seed_gives_another_search(seed: int) -> None:
    config = {"name": "random", "max_trials": 3, "max_concurrent_trials": 0}
    assert play(config, seed, [], reload=False) != play(config, seed + 1, [], reload=False)
