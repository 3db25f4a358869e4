"""What is asked of an index that there is not."""

from __future__ import annotations

import pytest

from resolute_master.domain.instance import Instance
from resolute_master.lifecycle.cluster import ClusterState


def test_an_index_that_lists_nothing_is_empty_and_one_that_is_not_there_is_an_error() -> None:
    state = ClusterState()
    assert state.keys("instances_of_pool", "default") == frozenset()
    with pytest.raises(KeyError, match="instance_of_pool"):
        state.keys("instance_of_pool", "default")
    with pytest.raises(KeyError, match="instance_of_pool"):
        state.find(Instance, "instance_of_pool", "default")
