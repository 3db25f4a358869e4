"""The page of the documentation on the contract's calls says what was seen here, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import api_coverage
from support.api_released import accepted
from support.live import LiveCluster
from support.rest_schema import contract

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces"), pytest.mark.needs("postgres")]


def test_the_page_on_the_contract_says_what_was_seen(evidence: Path, cluster: LiveCluster) -> None:
    """The last test of this directory: it looks at what the released client has accepted in all the others."""
    seen = api_coverage.callers(accepted(evidence))
    # Nothing after this needs the cluster, and the other directories take a while.
    cluster.stop()
    if os.environ.get("RESOLUTE_WRITE_COVERAGE"):
        shown = {key: api_coverage.chosen(by) for key, by in seen.items()}
        api_coverage.PAGE.write_text(api_coverage.page(api_coverage.rows(shown)))
    text = api_coverage.PAGE.read_text()
    claims = api_coverage.claimed(text)
    advice = f"run the whole directory; if the page is out of date: {api_coverage.REGENERATE}"
    unseen = {key: set(by) - seen.get(key, set()) for key, by in claims.items()}
    assert {key: by for key, by in unseen.items() if by} == {}, f"claimed and not seen; {advice}"
    assert [key for key in seen if not claims.get(key)] == [], f"seen and not claimed; {advice}"
    assert text == api_coverage.page(api_coverage.rows(claims)), f"the page is not as it would be written; {advice}"


def test_the_client_accepted_all_of_the_everyday_path_that_it_calls(evidence: Path) -> None:
    seen = api_coverage.callers(accepted(evidence))
    missing = [
        f"{e.method} {e.path}"
        for e in contract().endpoints
        if e.tier == "A" and e.called and not seen.get(api_coverage.key_of(e))
    ]
    assert missing == []
