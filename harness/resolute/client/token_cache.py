"""Tokens of past logins, in one file that other clients of the same contract also read and write.

{"version": 2, "masters": {"http://host:8080": {"active_user": "ada", "tokens": {"ada": "..."}}}}
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput


def configuration_directory(environ: Mapping[str, str]) -> Path:
    """Where a user's client keeps its files."""
    if environ.get("DET_DEBUG_CONFIG_PATH"):
        return Path(environ["DET_DEBUG_CONFIG_PATH"])
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "determined"
    if environ.get("XDG_CONFIG_HOME"):
        return Path(environ["XDG_CONFIG_HOME"]) / "determined"
    return home / ".config" / "determined"


class TokenCache:
    """Tokens by master and user, and the active user of each master. Safe for concurrent writers."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "auth.json"

    def active_user(self, master: str) -> str | None:
        name: str | None = self._master(master).get("active_user")
        return name

    def token(self, master: str, user: str) -> str | None:
        token: str | None = self._master(master).get("tokens", {}).get(user)
        return token

    def users(self, master: str) -> tuple[str, ...]:
        """The users with a token for this master."""
        return tuple(sorted(self._master(master).get("tokens", {})))

    def store(self, master: str, user: str, token: str, *, active: bool = True) -> None:
        def change(entry: dict[str, Any]) -> None:
            entry.setdefault("tokens", {})[user] = token
            if active:
                entry["active_user"] = user

        self._update(master, change)

    def forget(self, master: str, user: str) -> None:
        """Drops the user's token, and with it the mark that they are active."""

        def change(entry: dict[str, Any]) -> None:
            entry.get("tokens", {}).pop(user, None)
            if entry.get("active_user") == user:
                del entry["active_user"]  # a null would be damage in the eyes of other clients

        self._update(master, change)

    def _master(self, master: str) -> dict[str, Any]:
        entry: dict[str, Any] = self._read()["masters"].get(master, {})
        return entry

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return _upgraded({})
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                raise InvalidInput(f"cannot read the stored logins: {error}") from None
            data = None
        if not isinstance(data, dict) or not isinstance(data.get("masters", {}), dict) or data.get("version", 0) > 2:
            self._path.unlink(missing_ok=True)
            raise InvalidInput(f"the stored logins in {self._path} were damaged and have been removed; log in again")
        return _upgraded(data)

    def _update(self, master: str, change: Callable[[dict[str, Any]], None]) -> None:
        with self._locked():
            data = self._read()
            change(data["masters"].setdefault(master, {"tokens": {}}))
            fresh = self._path.with_suffix(".json.new")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=4, sort_keys=True)
            fresh.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self._path.with_suffix(".json.lock"), "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise InvalidInput(
                f"cannot store logins in {self._path.parent}: {error.strerror}; make it writable, or name another "
                "directory with DET_DEBUG_CONFIG_PATH"
            ) from None


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """The content in version 2. Earlier versions contained tokens of one master only, without its address."""
    if data.get("version") == 2:
        return {"version": 2, "masters": data.get("masters", {})}
    if data.get("version") == 1:
        return {"version": 2, "masters": data.get("masters", {})}
    return {"version": 2, "masters": {}}
