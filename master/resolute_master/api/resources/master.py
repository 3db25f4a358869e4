"""The master itself: identity, health, configuration, its own log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.logs import set_color
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import LogLevel, Product
from resolute.wire.rest.info import Info
from resolute.wire.rest.master import (
    GetMasterConfigResponse,
    GetMasterResponse,
    LogConfig,
    LogEntry,
    MasterLogsQuery,
    MasterLogsResponse,
    PatchMasterConfigRequest,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.contract import CONTRACT_VERSION
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.http.streaming import stream
from resolute_master.api.reading.log_ring import LogLine
from resolute_master.api.render.states import level_of

ROOT_LOGGERS = ("resolute_master", "resolute_provisioner")
CHANGEABLE = frozenset({"log.level", "log.color"})
_LEVELS = {
    LogLevel.TRACE: logging.DEBUG,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.CRITICAL: logging.CRITICAL,
}


async def info(call: Call, _: None) -> Info:
    """Identity and version of the master; needs no login."""
    api = call.api
    return Info(
        version=CONTRACT_VERSION,
        resolute_version=api.version,
        master_id=api.master_id,
        cluster_id=api.cluster_id,
        cluster_name=api.cluster_name,
    )


async def master(call: Call, _: None) -> GetMasterResponse:
    """Identity, version and settings of the master that clients need."""
    api = call.api
    return GetMasterResponse(
        version=CONTRACT_VERSION,
        resolute_version=api.version,
        master_id=api.master_id,
        cluster_id=api.cluster_id,
        cluster_name=api.cluster_name,
        has_custom_logo=False,
        strict_job_queue_control=api.config.security.authz.strict_job_queue_control,
        feature_switches=api.config.feature_switches,
        product=Product.COMMUNITY,
        user_management_enabled=True,
    )


async def config(call: Call, _: None) -> GetMasterConfigResponse:
    """The configuration of the master, with secrets masked."""
    return GetMasterConfigResponse(config=call.api.config.masked())


async def change_config(call: Call, _: None) -> Empty:
    """Changes the level and the colours of the log until the master's next start. No other setting can change while the master
    runs."""
    request = await call.body(PatchMasterConfigRequest)
    paths = set(request.field_mask.paths if request.field_mask else ())
    unknown = sorted(paths - CHANGEABLE)
    if unknown or not paths:
        named = ", ".join(unknown) or "nothing"
        only = " and ".join(sorted(CHANGEABLE))
        raise InvalidInput(f"fieldMask.paths: {named} cannot be changed while the master runs; only {only} can")
    log = (request.config.log if request.config else None) or LogConfig()
    level = _LEVELS.get(log.level) if log.level is not None else None
    if "log.level" in paths:
        if level is None:
            raise InvalidInput("config.log.level: name a level, LOG_LEVEL_DEBUG for example")
        for name in ROOT_LOGGERS:
            logging.getLogger(name).setLevel(level)
    if "log.color" in paths:
        set_color(log.color)
    return Empty()


async def logs(call: Call, _: None) -> web.StreamResponse:
    """The log of the master, as a stream of entries."""
    query = call.query(MasterLogsQuery)
    if query.limit < 0:
        raise InvalidInput(f"limit: {query.limit} must not be negative; 0 means no limit")
    return await stream(call, _log_lines(call, query))


async def _log_lines(call: Call, query: MasterLogsQuery) -> AsyncGenerator[Any, None]:
    ring = call.api.master_log
    with ring.follow() as news:
        lines = ring.after(0, since=query.timestamp_after)
        start = max(0, len(lines) + query.offset) if query.offset < 0 else query.offset
        sent = 0
        lines = lines[start:]
        while True:
            last = lines[-1].id if lines else ring.last
            for line in lines:
                if query.limit and sent == query.limit:
                    return
                yield MasterLogsResponse(log_entry=_entry(line))
                sent += 1
            if not query.follow or (query.limit and sent == query.limit):
                return
            await wait_for_news(call, news)
            if call.gone:
                return
            lines = ring.after(last, since=query.timestamp_after)


async def wait_for_news(call: Call, news: asyncio.Event, check_s: float = 10.0) -> None:
    """Wait for news; checks at intervals whether the client is still connected."""
    while not news.is_set() and not call.gone:
        try:
            async with asyncio.timeout(check_s):
                await news.wait()
        except TimeoutError:
            continue
    news.clear()


def _entry(line: LogLine) -> LogEntry:
    return LogEntry(
        id=line.id,
        level=level_of(line.level),
        message=line.message,
        timestamp=line.at,
        logger=line.logger,
        fields=line.fields,
    )


ROUTES = (
    Route("GET", "/info", Action.PUBLIC, nothing, info),
    Route("GET", "/api/v1/master", Action.PUBLIC, nothing, master),
    Route("GET", "/api/v1/master/config", Action.VIEW_MASTER_CONFIG, nothing, config),
    Route("PATCH", "/api/v1/master/config", Action.CHANGE_MASTER_CONFIG, nothing, change_config),
    Route("GET", "/api/v1/master/logs", Action.VIEW, nothing, logs),
)
