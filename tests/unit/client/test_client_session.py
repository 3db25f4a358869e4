"""Requests, retries, errors and streams, over a transport that is no network."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from resolute.client.errors import MasterUnreachable, ServerError
from resolute.client.resumed import fetch_archive
from resolute.client.session import Retry, Session, retry_from
from resolute.client.trials import RECONNECT_PAUSES_S, Trials
from resolute.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    ResoluteError,
    Unauthenticated,
    Unavailable,
)
from resolute.wire.rest.auth import GetMeResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.experiment_changes import CreateExperimentRequest
from resolute.wire.rest.experiments import GetExperimentsQuery
from resolute.wire.rest.logs import LogsQuery, TrialLogsResponse

Answer = httpx.Response | Exception


class WholeSteps(random.Random):
    """Every pause is the whole of its step."""

    def random(self) -> float:
        return 1.0


def session_of(
    *answers: Answer, pauses: list[float] | None = None, **options: Any
) -> tuple[Session, list[httpx.Request]]:
    """A session whose master answers so, one after the other; the requests that it made."""
    left, seen = list(answers), []

    def answer(request: httpx.Request) -> httpx.Response:
        request.read()
        seen.append(request)
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    waited = pauses if pauses is not None else []
    return (
        Session(
            "http://master:8080",
            transport=httpx.MockTransport(answer),
            pause=waited.append,
            **{"rng": WholeSteps(), **options},
        ),
        seen,
    )


def failure(status: int, code: int, text: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "reason": "Reason", "error": text}})


ME = {"user": {"username": "ada", "active": True, "admin": False, "id": 3}}


def test_the_token_goes_along_and_the_answer_is_typed() -> None:
    session, seen = session_of(httpx.Response(200, json=ME), token="secret")
    assert session.get("api/v1/me", GetMeResponse).user.username == "ada"
    assert str(seen[0].url) == "http://master:8080/api/v1/me"
    assert seen[0].headers["Authorization"] == "Bearer secret"


def test_a_path_prefix_of_the_master_is_kept() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json={})

    Session("http://gate:80/det", transport=httpx.MockTransport(answer)).get("api/v1/me", Empty)
    assert seen == ["http://gate/det/api/v1/me"]


def test_queries_repeat_keys_and_leave_defaults_out() -> None:
    session, seen = session_of(httpx.Response(200, json={}))
    session.get("api/v1/experiments", Empty, GetExperimentsQuery(users=("ada", "b c"), archived=False, limit=5))
    assert seen[0].url.query == b"archived=false&limit=5&users=ada&users=b+c"


def test_an_upload_is_reported_piece_by_piece() -> None:
    session, seen = session_of(httpx.Response(200, json={}))
    heard: list[tuple[int, int]] = []
    request = CreateExperimentRequest(config="x" * 600_000)
    session.post("api/v1/experiments", Empty, request, lambda done, total: heard.append((done, total)))
    total = len(seen[0].content)
    assert json.loads(seen[0].content)["config"] == request.config
    assert seen[0].headers["Content-Length"] == str(total)
    assert heard == [(262144, total), (524288, total), (total, total)]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, 3, InvalidInput),
        (400, 9, FailedPrecondition),
        (401, 16, Unauthenticated),
        (403, 7, PermissionDenied),
        (404, 5, NotFound),
        (409, 6, AlreadyExists),
        (409, 10, Conflict),
        (413, 0, LimitExceeded),
        (429, 8, LimitExceeded),
        (500, 13, ServerError),
        (501, 12, ServerError),
    ],
)
def test_errors_have_the_masters_words(status: int, code: int, kind: type[ResoluteError]) -> None:
    session, _ = session_of(failure(status, code, "experiment '7' not found"))
    with pytest.raises(kind) as caught:
        session.post("api/v1/anything", Empty)
    assert str(caught.value) == "experiment '7' not found"


def test_what_is_not_found_is_known_also_where_the_master_says_what_to_do() -> None:
    session, _ = session_of(failure(404, 5, "job '2' not found; look at `det job list`"))
    with pytest.raises(NotFound) as caught:
        session.post("api/v1/anything", Empty)
    assert (caught.value.kind, caught.value.key) == ("job", "2")
    assert str(caught.value) == "job '2' not found; look at `det job list`"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"message": "no such route"}', "no such route"),
        (b'{"error": "plain"}', "plain"),
        (b'{"detail": "x"}', '{"detail": "x"}'),
        (b"<html>proxy</html>", "http://master:8080/x answered with status 404 and no explanation"),
        (b"", "http://master:8080/x answered with status 404 and no explanation"),
        (b"words", "words"),
        (b"[1]", "[1]"),
    ],
)
def test_errors_of_other_shapes_are_shown_too(body: bytes, text: str) -> None:
    session, _ = session_of(httpx.Response(404, content=body))
    with pytest.raises(NotFound) as caught:
        session.get("x", Empty)
    assert str(caught.value) == text


def test_reading_is_tried_again_with_growing_pauses() -> None:
    pauses: list[float] = []
    refused = httpx.ConnectError("[Errno 111] Connection refused")
    session, seen = session_of(
        failure(503, 14, "busy"), refused, failure(502, 14, "busy"), httpx.Response(200, json={}), pauses=pauses
    )
    session.get("x", Empty)
    assert len(seen) == 4
    assert pauses == [0.0, 1.0, 2.0]


def test_pauses_of_several_callers_are_spread() -> None:
    drawn = []
    for seed in range(20):
        pauses: list[float] = []
        answers = [*[failure(503, 14, "busy") for _ in range(3)], httpx.Response(200, json={})]
        session, _ = session_of(*answers, pauses=pauses, rng=random.Random(seed))
        session.get("x", Empty)
        drawn.append(pauses[-1])
    assert all(1.0 <= pause <= 2.0 for pause in drawn) and max(drawn) - min(drawn) > 0.5


def test_trying_again_ends() -> None:
    session, seen = session_of(*[failure(503, 14, "busy") for _ in range(3)], retry=Retry(total=2))
    with pytest.raises(Unavailable, match="busy"):
        session.get("x", Empty)
    assert len(seen) == 3


def test_what_may_not_be_repeated_is_not() -> None:
    session, seen = session_of(failure(503, 14, "busy"))
    with pytest.raises(Unavailable):
        session.post("x", Empty)
    assert len(seen) == 1


def test_other_failures_are_not_tried_again() -> None:
    session, seen = session_of(failure(500, 13, "broken"))
    with pytest.raises(ServerError):
        session.get("x", Empty)
    assert len(seen) == 1


def test_an_unreachable_master_is_named() -> None:
    session, _ = session_of(httpx.ConnectError("[Errno 111] Connection refused"), retry=Retry(total=0))
    with pytest.raises(MasterUnreachable, match=r"no master answers at http://master:8080 \(connection refused\)"):
        session.get("x", Empty)


@pytest.mark.parametrize("content", [b"<html>", b'{"user": 3}', b"[]"])
def test_something_that_is_no_master_is_said_to_be_none(content: bytes) -> None:
    session, _ = session_of(httpx.Response(200, content=content))
    with pytest.raises(ServerError, match="master"):
        session.get("api/v1/me", GetMeResponse)


def test_retries_come_from_the_environment() -> None:
    given = retry_from({"DET_RETRY_CONFIG": '{"total": 1, "backoff_factor": 2, "status_forcelist": [500]}'})
    assert given == Retry(total=1, backoff_s=2.0, statuses=frozenset({500}))
    assert retry_from({}) == Retry()
    for wrong in ("x", "[]", '{"total": "many"}'):
        with pytest.raises(InvalidInput, match="DET_RETRY_CONFIG"):
            retry_from({"DET_RETRY_CONFIG": wrong})


# ------------------------------------------------------------------------------------------------------------- streams


class Pieces(httpx.SyncByteStream):
    """A body that arrives in these pieces and then, perhaps, breaks off."""

    def __init__(
        self, *pieces: bytes, then: Exception | None = None, closed: Callable[[], object] = lambda: None
    ) -> None:
        self._pieces, self._then, self._closed = pieces, then, closed

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._then is not None:
            raise self._then

    def close(self) -> None:
        self._closed()


def line(number: int, text: str) -> bytes:
    item = {
        "id": str(number),
        "level": "LOG_LEVEL_INFO",
        "message": text,
        "timestamp": "2024-05-01T12:00:00Z",
        "trialId": 1,
    }
    return json.dumps({"result": item}, ensure_ascii=False).encode() + b"\n"


def test_lines_end_at_line_feeds_only_wherever_the_pieces_end() -> None:
    content = line(1, "a\u2028b\x85c") + line(2, "d")
    pieces = [content[index : index + 7] for index in range(0, len(content), 7)]
    session, _ = session_of(httpx.Response(200, stream=Pieces(*pieces)))
    assert [item.message for item in session.stream("x", TrialLogsResponse)] == ["a\u2028b\x85c", "d"]


def test_a_last_line_without_its_end_counts() -> None:
    session, _ = session_of(httpx.Response(200, stream=Pieces(line(1, "a").rstrip())))
    assert [item.message for item in session.stream("x", TrialLogsResponse)] == ["a"]


def test_a_stream_that_fails_midway_raises_what_the_master_says() -> None:
    error = (
        b'{"error": {"grpcCode": 5, "httpCode": 404, "message": "trial \'1\' not found", "httpStatus": "Not Found"}}\n'
    )
    session, _ = session_of(httpx.Response(200, stream=Pieces(line(1, "a"), error)))
    items = session.stream("x", TrialLogsResponse)
    assert next(items).message == "a"
    with pytest.raises(NotFound) as caught:
        next(items)
    assert (caught.value.kind, caught.value.key) == ("trial", "1")


def test_a_refused_stream_raises_before_any_item() -> None:
    session, _ = session_of(failure(400, 3, "limit and follow do not go together"))
    with pytest.raises(InvalidInput, match="limit and follow"):
        next(session.stream("x", TrialLogsResponse))


def test_an_abandoned_stream_is_closed() -> None:
    closed: list[bool] = []
    session, _ = session_of(
        httpx.Response(200, stream=Pieces(line(1, "a"), line(2, "b"), closed=lambda: closed.append(True)))
    )
    items = session.stream("x", TrialLogsResponse)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert closed


def test_an_archive_of_a_master_without_entity_tags_comes_whole_and_is_reported(tmp_path: Path) -> None:
    body = b"\x1f\x8bnot really gzip"
    headers = {"Content-Length": str(len(body)), "Content-Type": "application/gzip"}
    session, seen = session_of(httpx.Response(200, headers=headers, stream=Pieces(body[:4], body[4:])))
    heard: list[tuple[int, int]] = []
    got = fetch_archive(session, "checkpoints/u", tmp_path / "c", lambda done, total: heard.append((done, total)))
    assert got.read_bytes() == body
    assert heard == [(4, len(body)), (len(body), len(body))]
    assert seen[0].headers["Accept"] == "application/x-tar"


# ------------------------------------------------------------------------------------ following over a master's restart

BREAK = httpx.RemoteProtocolError("peer closed connection without sending complete message body")
REFUSED = httpx.ConnectError("[Errno 111] Connection refused")


def followed(*answers: Answer, follow: bool = True) -> tuple[list[str], list[float], Exception | None]:
    """The log that came through, the pauses that were made, and how it ended."""
    session, _ = session_of(*answers)
    messages: list[str] = []
    pauses: list[float] = []
    try:
        for item in Trials(session).logs(1, LogsQuery(follow=follow), pause=pauses.append):
            messages.append(item.message)
    except ResoluteError as error:
        return messages, pauses, error
    return messages, pauses, None


def test_a_followed_log_goes_on_where_it_broke_off() -> None:
    first = httpx.Response(200, stream=Pieces(line(1, "a"), line(2, "b"), then=BREAK))
    second = httpx.Response(200, stream=Pieces(line(1, "a"), line(2, "b"), line(3, "c"), then=BREAK))
    third = httpx.Response(200, stream=Pieces(line(1, "a"), line(2, "b"), line(3, "c"), line(4, "d")))
    messages, _, error = followed(first, REFUSED, REFUSED, second, third)
    assert messages == ["a", "b", "c", "d"]
    assert error is None


def test_a_master_that_stays_away_ends_the_following() -> None:
    first = httpx.Response(200, stream=Pieces(line(1, "a"), then=BREAK))
    messages, pauses, error = followed(first, *[REFUSED for _ in RECONNECT_PAUSES_S])
    assert messages == ["a"]
    assert isinstance(error, MasterUnreachable)
    assert pauses == list(RECONNECT_PAUSES_S)


def test_a_log_that_is_not_followed_does_not_come_in_two_halves() -> None:
    first = httpx.Response(200, stream=Pieces(line(1, "a"), then=BREAK))
    messages, pauses, error = followed(first, follow=False)
    assert (messages, pauses) == (["a"], [])
    assert isinstance(error, MasterUnreachable)


def test_a_master_that_was_never_there_is_not_waited_for() -> None:
    messages, pauses, error = followed(REFUSED)
    assert (messages, pauses) == ([], [])
    assert isinstance(error, MasterUnreachable)


def busy(seconds: str | None) -> httpx.Response:
    headers = {} if seconds is None else {"Retry-After": seconds}
    return httpx.Response(429, json={"error": {"code": 8, "error": "the inbox is full"}}, headers=headers)


def test_a_call_that_was_refused_for_now_is_repeated_after_the_time_that_the_master_names() -> None:
    pauses: list[float] = []
    session, seen = session_of(busy("3"), busy("1"), httpx.Response(200, json=ME), pauses=pauses)
    session.post("api/v1/anything", Empty)  # also a verb that is not repeated otherwise: nothing was done
    assert len(seen) == 3 and pauses == [3.0, 1.5], "never before the time that is named"


@pytest.mark.parametrize("seconds", [None, "soon", "0"])
def test_without_a_time_it_is_not_repeated(seconds: str | None) -> None:
    session, seen = session_of(busy(seconds))
    with pytest.raises(LimitExceeded, match="inbox"):
        session.post("api/v1/anything", Empty)
    assert len(seen) == 1


def test_a_master_that_stays_busy_is_given_up() -> None:
    session, seen = session_of(*[busy("1")] * 3, retry=Retry(total=2))
    with pytest.raises(LimitExceeded):
        session.get("api/v1/me", GetMeResponse)
    assert len(seen) == 3


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the sort")
    with pytest.raises(InvalidInput, match=r"DET_MASTER_CERT_FILE: .*ca\.pem' holds no certificates"):
        Session("https://localhost:8443", verify=str(tmp_path / "ca.pem"))
    Session("http://localhost:8080", verify=str(tmp_path / "ca.pem")).close()


@pytest.mark.parametrize(
    ("master", "error", "said"),
    [
        (
            "https://m:8443",
            httpx.ConnectError(
                "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1006)"
            ),
            "not trusted: unable to get local issuer certificate; copy the master's ca.pem",
        ),
        ("https://m:8080", httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "use http://m:8080"),
        ("http://m:8443", httpx.RemoteProtocolError("Server disconnected"), "begins with https://"),
    ],
)
def test_what_is_wrong_with_tls_is_said_in_words_and_at_once(
    master: str, error: httpx.TransportError, said: str
) -> None:
    asked = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise error

    with (
        Session(master, transport=httpx.MockTransport(refuse), pause=lambda _: None) as session,
        pytest.raises(MasterUnreachable, match=re.escape(said)),
    ):
        session.request("GET", "health")
    assert len(asked) == (1 if "CERTIFICATE" in str(error) else 6)
