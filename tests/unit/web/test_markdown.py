"""Notes as HTML: what they may hold, and that nothing in them is ever more than that."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resolute_web.markdown import MOST_CHARACTERS, may_link, shown
from support.web_scene import NASTY

TEXT_TAGS = {
    "p",
    "br",
    "hr",
    "h3",
    "h4",
    "h5",
    "h6",
    "em",
    "strong",
    "s",
    "code",
    "pre",
    "a",
    "ul",
    "ol",
    "li",
    "blockquote",
}
TAGS = TEXT_TAGS | {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": {"href", "title", "rel"}, "ol": {"start"}, "code": {"class"}, "th": {"class"}, "td": {"class"}}

SYNTAX = (
    "#",
    "*",
    "_",
    "`",
    "```\n",
    "[a](",
    ")",
    "![",
    "](",
    "<",
    ">",
    "&",
    '"',
    "\n",
    "\n\n",
    "- ",
    "|",
    "|-|",
    "\\",
    "://",
)
SCHEMES = (
    "javascript:",
    "JaVaScRiPt:",
    "java\tscript:",
    "&#106;avascript:",
    "data:text/html,",
    "vbscript:",
    "http://a",
    "//a",
)


class Elements(HTMLParser):
    """Every element as a browser makes it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(str(text))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.lists(st.sampled_from([*SYNTAX, *SCHEMES, *NASTY, "x", " ", "1. "]), max_size=25).map("".join))
@example("[a](javascript:window.owned=1)")
@example('![a](http://b "\\"><script>window.owned=1</script>")')
@example("|a|\n|-:|\n|[a](data:text/html,b)|")
@example('```x"><script>window.owned=1</script>\n```')
def test_notes_hold_known_elements_only_and_links_that_run_nothing(text: str) -> None:
    for tag, attributes in Elements(shown(text)).found:
        assert tag in TAGS, tag
        assert attributes.keys() <= ATTRIBUTES.get(tag, set()), attributes
        if tag == "a":
            assert may_link(attributes["href"] or ""), attributes


@pytest.mark.parametrize("text", NASTY)
def test_html_in_notes_is_shown_as_it_was_written(text: str) -> None:
    assert Elements(shown(text)).words.strip() == text


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://a/b?c=d:e", True),
        ("HTTP://a", True),
        ("mailto:ada@example.org", True),
        ("/det/experiments/3", True),
        ("notes/a:b", True),
        ("?a:b", True),
        ("javascript:a", False),
        (" JAVASCRIPT:a", False),
        ("java\nscript:a", False),
        ("data:text/html,a", False),
        ("file:///etc/passwd", False),
        (":a", False),
    ],
)
def test_where_links_may_go(address: str, allowed: bool) -> None:
    assert may_link(address) is allowed


def test_notes_are_shown_as_markdown() -> None:
    text = "# Plan\nfirst\nsecond **now** ~~then~~\n\n- `a<b`\n\n|a|b|\n|-|-:|\n|1|2|\n\n![curve](http://a/b.png)"
    html = shown(text)
    for part in (
        "<h3>Plan</h3>",
        "first<br />",
        "<strong>now</strong> <s>then</s>",
        "<code>a&lt;b</code>",
        '<td class="right">2</td>',
        '<a href="http://a/b.png" rel="noopener noreferrer">curve</a>',
    ):
        assert part in html


def test_long_notes_are_shown_as_they_were_written() -> None:
    text = "<b>*" * (MOST_CHARACTERS // 4 + 1)
    assert Elements(shown(text)).found == [("p", {"class": "prose"})]
    assert Elements(shown(text)).words == text
