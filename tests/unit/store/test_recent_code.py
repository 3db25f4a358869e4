"""Model code that goes along with orders: small, recent, and never wrong."""

from __future__ import annotations

import base64

from resolute.wire.agent_link import MAX_CODE_CHARACTERS
from resolute_master.store.recent_code import RecentCode


def test_it_is_what_the_launcher_would_fetch() -> None:
    code = RecentCode()
    code.remember("a", b"archive")
    assert base64.b64decode(code.find("a") or "") == b"archive"
    assert code.find("") == "", "there is no code"
    assert code.find("b") is None, "who does not know must ask"


def test_what_is_large_is_left_to_who_asks() -> None:
    code = RecentCode()
    most = MAX_CODE_CHARACTERS // 4 * 3
    code.remember("fits", b"x" * most)
    code.remember("large", b"x" * (most + 1))
    assert len(code.find("fits") or "") == MAX_CODE_CHARACTERS
    assert code.find("large") is None


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    code = RecentCode(most=8)
    for name in ("a", "b"):
        code.remember(name, name.encode())
    assert code.find("a")
    code.remember("c", b"c")
    assert (code.find("b"), bool(code.find("a")), bool(code.find("c"))) == (None, True, True)
