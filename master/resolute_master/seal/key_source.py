"""Where the sealing key comes from: the configuration or environment, a command, or a file."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
from pathlib import Path

from resolute.config import MasterConfig
from resolute.errors import InvalidInput
from resolute_master.seal.cipher import Key

log = logging.getLogger(__name__)

KEY_FILE = "seal.key"
"""In `cluster_state_dir`, where the configuration names no place."""

VARIABLE = "DET_SECURITY_SEAL_KEY"

COMMAND_LIMIT_S = 60.0
"""A secret store that has not answered by then is reported as an error, not waited for."""

HOW_TO_GIVE = (
    f"put it there again, or name another place: security.seal.key_file, security.seal.key_command or {VARIABLE}"
)


def key_file(config: MasterConfig) -> Path:
    """The file that is read where neither a key nor a command is configured."""
    named = config.security.seal.key_file
    return Path(named) if named else Path(config.cluster_state_dir) / KEY_FILE


def described(config: MasterConfig) -> str:
    """The place that the configuration names, for messages."""
    seal = config.security.seal
    if seal.key:
        return f"security.seal.key ({VARIABLE})"
    if seal.key_command:
        return f"the command security.seal.key_command ({seal.key_command[0]})"
    return str(key_file(config))


def given_key(config: MasterConfig) -> Key | None:
    """The key that the configuration gives; None when its file does not exist. Blocking. Raises `InvalidInput`."""
    seal = config.security.seal
    if seal.key:
        return _parsed(seal.key, f"security.seal.key ({VARIABLE})")
    if seal.key_command:
        return _parsed(_printed(seal.key_command), f"security.seal.key_command: the output of {seal.key_command[0]}")
    return read_key(key_file(config))


def read_key(path: Path) -> Key | None:
    """The key in a file; None when there is no such file. Raises `InvalidInput`."""
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(f"security.seal.key_file: {path} cannot be read: {reason}; {HOW_TO_GIVE}") from error
    return _parsed(text, f"security.seal.key_file: {path}")


def make_key_file(path: Path) -> Key:
    """A new key in a new file, 0600, on the disk when this returns; a file that is there already is never replaced.

    Raises `InvalidInput`.
    """
    key = Key.new()
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(key.text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(fresh, path)  # unlike a rename, it fails where there is a file
        finally:
            fresh.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise InvalidInput(
            f"security.seal.key_file: the key {path} cannot be made: {error.strerror}; "
            "name a file in a directory that the master may write to"
        ) from error
    log.warning("made the sealing key %s; keep a copy of it apart from the backups of the database", path)
    return key


def _parsed(text: str, source: str) -> Key:
    try:
        return Key.from_text(text)
    except ValueError as error:
        raise InvalidInput(f"{source} {error}; give a key that `openssl rand -hex 32` prints") from None


def _printed(command: tuple[str, ...]) -> str:
    name = command[0]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error.strerror if isinstance(error, OSError) else f"it did not end within {COMMAND_LIMIT_S:.0f} s"
        raise InvalidInput(f"security.seal.key_command: {name} failed: {said}; run it by hand as this user") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()[-1:] or ["it printed no error"]
        raise InvalidInput(
            f"security.seal.key_command: {name} ended with {done.returncode}: {words[0]}; run it by hand as this user"
        )
    return done.stdout
