"""TLS on the master's socket: who is served, who is refused, and certificates that are exchanged while it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from resolute.clock import FixedClock
from resolute.config import parse_master_config
from resolute.errors import InvalidInput
from resolute_master.api.http import limits
from resolute_master.api.http.connections import Listening, Timeouts, runner_of
from resolute_master.api.http.response_headers import ResponseHeaders
from resolute_master.certificates import Authority, fingerprint
from resolute_master.tls import Tls, names_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_config(directory: Path, **tls: Any) -> Any:
    return parse_master_config(
        {"host": "127.0.0.1", "cluster_state_dir": str(directory), "security": {"tls": {"enabled": True, **tls}}}
    )


def made(directory: Path, **tls: Any) -> Tls:
    found = Tls.of(a_config(directory, **tls), FixedClock(datetime.now(UTC)))
    assert found is not None
    return found


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.scheme} {await request.text()}")


@asynccontextmanager
async def a_server(tls: Tls, **timeouts: float) -> AsyncIterator[tuple[Listening, int]]:
    app = web.Application()
    headers = ResponseHeaders(hsts_max_age_s=3600)

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        headers.add(request, response)

    app.on_response_prepare.append(add_headers)
    app.router.add_post("/", hello)
    runner = runner_of(app, stop_grace_s=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    listening = Listening(runner, limit=100, timeouts=Timeouts(sweep_s=0.05, **timeouts), tls=tls.context)
    await listening.begin(listener)
    try:
        yield listening, listener.getsockname()[1]
    finally:
        await listening.end()
        await runner.cleanup()


async def post(port: int, trust: ssl.SSLContext, body: str = "", *, host: str = "127.0.0.1") -> str:
    async with ClientSession() as http, http.post(f"https://{host}:{port}/", data=body.encode(), ssl=trust) as answer:
        return await answer.text()


async def until_open(listening: Listening, count: int) -> None:
    async with asyncio.timeout(30):
        while listening.connections.count != count:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)


async def test_callers_who_trust_the_authority_are_served_and_others_leave(tmp_path: Path) -> None:
    tls = made(tmp_path)
    trust = ssl.create_default_context(cafile=tls.trust.file)
    async with a_server(tls) as (listening, port):
        large = "x" * 900_000
        assert await asyncio.gather(*(post(port, trust, large) for _ in range(3))) == [f"https {large}"] * 3
        assert await post(port, trust, host="localhost") == "https "
        with pytest.raises(OSError, match=r"(?i)certificate"):
            await post(port, ssl.create_default_context())
        await until_open(listening, 0)


async def test_a_browser_that_came_over_tls_is_to_stay_with_it(tmp_path: Path) -> None:
    tls = made(tmp_path)
    trust = ssl.create_default_context(cafile=tls.trust.file)
    async with (
        a_server(tls) as (_, port),
        ClientSession() as http,
        http.post(f"https://127.0.0.1:{port}/", ssl=trust) as answer,
    ):
        assert answer.headers["Strict-Transport-Security"] == "max-age=3600"


async def test_a_caller_without_tls_or_with_an_old_one_is_not_served(tmp_path: Path) -> None:
    tls = made(tmp_path)
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    async with a_server(tls) as (listening, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), 30)
        writer.close()
        old = ssl.create_default_context(cafile=tls.trust.file)
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError):
            await post(port, old)
        await until_open(listening, 0)


async def test_a_handshake_that_is_never_finished_is_given_up(tmp_path: Path) -> None:
    assert Timeouts().handshake_s == limits.HANDSHAKE_S
    tls = made(tmp_path)
    async with a_server(tls, handshake_s=0.3) as (listening, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        silent[0][1].write(b"\x16\x03\x01\x02\x00")  # as if more of it came
        await until_open(listening, 5)
        await until_open(listening, 0)
        for _, writer in silent:
            writer.transport.abort()
        assert await post(port, ssl.create_default_context(cafile=tls.trust.file)) == "https "


async def test_a_certificate_that_is_exchanged_is_served_without_a_new_start(tmp_path: Path) -> None:
    """As certbot does it: two files, one after the other, so that they do not fit for a moment."""
    made_by_hand = [Authority(tmp_path / name, cluster_name=name) for name in ("first", "second")]
    for each in made_by_hand:
        each.prepare(("127.0.0.1",), datetime.now(UTC))
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path in (cert, key):
        shutil.copy(made_by_hand[0].files.server, path)
    tls = made(tmp_path, cert=str(cert), key=str(key), ca=str(made_by_hand[0].files.authority))
    first, second = (ssl.create_default_context(cafile=str(each.files.authority)) for each in made_by_hand)
    async with a_server(tls) as (_, port):
        watching = asyncio.create_task(tls.watch(0.02))
        try:
            assert await post(port, first) == "https "
            shutil.copy(made_by_hand[1].files.server, cert)
            await asyncio.sleep(0.2)
            assert await post(port, first) == "https ", "the one that was loaded before goes on"
            shutil.copy(made_by_hand[1].files.server, key)
            async with asyncio.timeout(30):
                while True:
                    try:
                        assert await post(port, second) == "https "
                        break
                    except OSError:
                        await asyncio.sleep(0.05)
        finally:
            watching.cancel()


async def test_no_certificate_is_loaded_into_a_context_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL ends the process when a thread loads a certificate into a context that a handshake uses at that moment."""
    loaded: list[ssl.SSLContext] = []

    load = ssl.SSLContext.load_cert_chain

    def recorded(context: ssl.SSLContext, *args: Any, **options: Any) -> None:
        loaded.append(context)
        load(context, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", recorded)
    tls = made(tmp_path)
    trust = ssl.create_default_context(cafile=tls.trust.file)
    async with a_server(tls) as (_, port):
        watching = asyncio.create_task(tls.watch(0.0))
        try:
            for exchanged in range(3):
                served = len(loaded)
                os.utime(tmp_path / "tls" / "server.pem", (exchanged, exchanged))
                async with asyncio.timeout(30):
                    while len(loaded) == served:
                        assert await post(port, trust) == "https "
        finally:
            watching.cancel()
    assert len(loaded) >= 4 and len(set(map(id, loaded))) == len(loaded)
    assert tls.context not in loaded


def test_what_cannot_be_served_is_refused_by_its_key(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    with pytest.raises(InvalidInput, match=r"security\.tls: cannot use cert .*nothing\.pem"):
        made(tmp_path, cert=str(nothing), key=str(nothing))
    for given, named in (
        ({"cert": "a.pem"}, "cert and key"),
        ({"ca": "a.pem"}, "requires cert"),
        ({"names": ["not a name"]}, "must be the name of a host"),
    ):
        with pytest.raises(InvalidInput, match=named):
            a_config(tmp_path, **given)


def test_what_is_handed_out_is_the_authority_and_no_key(tmp_path: Path) -> None:
    own = made(tmp_path / "own")
    assert own.trust.file == str(tmp_path / "own" / "tls" / "ca.pem") and "PRIVATE" not in own.trust.pem
    # A certificate that does not vouch for itself, without its authority: machines are left to what they trust already.
    server = str(tmp_path / "own" / "tls" / "server.pem")
    assert made(tmp_path, cert=server, key=server).trust.pem == ""
    alone = str(tmp_path / "own" / "tls" / "authority.pem")
    trust = made(tmp_path, cert=alone, key=alone).trust
    assert trust.file == alone and "PRIVATE" not in trust.pem
    assert fingerprint(trust.pem.encode()) == fingerprint(own.trust.pem.encode())


def test_names_are_those_that_callers_use(tmp_path: Path) -> None:
    provider = {"type": "local", "master_url": "https://cluster.example.org:8443"}
    config = parse_master_config(
        {
            "host": "10.0.0.7",
            "security": {"tls": {"enabled": True, "names": ["Master.Example.org", "fd00:0::1"]}},
            "resource_pools": [{"pool_name": "default", "provider": provider}],
        }
    )
    assert config.port == 8443
    assert names_of(config) == (
        "master.example.org",
        "fd00::1",
        "10.0.0.7",
        "cluster.example.org",
        "localhost",
        "127.0.0.1",
        "::1",
    )
    assert socket.gethostname().lower() in names_of(parse_master_config({"host": "0.0.0.0"}))
