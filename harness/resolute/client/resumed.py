"""A download of an archive from the master that resumes after an interruption: in the same call, or in the next one after a kill.

The received part is in a file beside the target, whose name contains the archive's entity tag. Without a tag, each call downloads
everything.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from resolute.client.errors import MasterUnreachable
from resolute.client.session import Progress, Session

ARCHIVE = "application/x-tar"
PARTIAL, NOT_SATISFIABLE = 206, 416
_TAG = re.compile(r'"([0-9a-f]{16,128})"')


def fetch_archive(session: Session, path: str, target: Path, progress: Progress | None = None) -> Path:
    """The whole archive in a file beside `target`; the caller removes it. `progress` is called with (received bytes, total bytes).

    A connection that breaks is opened again, and again as long as something arrives. Raises `MasterUnreachable`: then the next call
    continues from there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    while True:
        before = _arrived(target)
        try:
            return _fetch_on(session, path, target, progress)
        except MasterUnreachable as error:
            failures = 1 if _arrived(target) > before else failures + 1
            if failures > session.retry.total:
                if not _arrived(target):
                    _forget(target)
                    raise
                raise MasterUnreachable(
                    session.master, f"{error.cause}; the received part is kept: repeat the command to continue"
                ) from error
        session.wait_after(failures)


def _fetch_on(session: Session, path: str, target: Path, progress: Progress | None) -> Path:
    kept, tag = _kept(target)
    headers = {"Accept": ARCHIVE}
    if kept is not None:
        headers |= {"Range": f"bytes={kept.stat().st_size}-", "If-Range": f'"{tag}"'}
    with session.raw("GET", path, headers, also=(PARTIAL, NOT_SATISFIABLE)) as response:
        if response.status_code == NOT_SATISFIABLE:
            if kept is not None and response.headers.get("Content-Range") == f"bytes */{kept.stat().st_size}":
                return kept  # killed after the last byte
            _forget(target)
            raise MasterUnreachable(session.master, "its archive has another length than before")
        if response.status_code != PARTIAL or kept is None:
            _forget(target)
            kept = _beside(target, response.headers.get("ETag", ""))
        done = kept.stat().st_size if kept.exists() else 0
        total = done + int(response.headers.get("Content-Length") or 0)
        with open(kept, "ab") as file:
            for piece in response.iter_raw():
                file.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, max(done, total))
    return kept


def _beside(target: Path, etag: str) -> Path:
    found = _TAG.fullmatch(etag)
    return target.with_name(f".{target.name}.{found[1] if found else ''}.tar")


def _kept(target: Path) -> tuple[Path | None, str]:
    """The part of an earlier attempt that can be continued, and its entity tag."""
    for found in _all(target):
        tag = found.name.removeprefix(f".{target.name}.").removesuffix(".tar")
        if _TAG.fullmatch(f'"{tag}"') and found.stat().st_size:
            return found, tag
    return None, ""


def _arrived(target: Path) -> int:
    kept, _ = _kept(target)
    return 0 if kept is None else kept.stat().st_size


def _forget(target: Path) -> None:
    for found in _all(target):
        with suppress(FileNotFoundError):
            found.unlink()


def _all(target: Path) -> list[Path]:
    begin, end = f".{target.name}.", ".tar"
    return sorted(
        each
        for each in target.parent.iterdir()
        if each.name.startswith(begin) and each.name.endswith(end) and each.is_file()
    )
