"""The package that new machines run their agent from: made of this installation's own files, so that master and agents are
always of one version, whatever an index has."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import resolute
import resolute_agent
from resolute import DISTRIBUTION
from resolute.providers import NOTICE_SOURCES, PROVIDERS
from resolute_provisioner.bootstrap import AgentWheel

PACKAGES = (resolute, resolute_agent)
"""What an agent and the tasks that it starts import, beside the notices of the clouds."""

_FILE_NAME = DISTRIBUTION.replace("-", "_")
"""As the names of wheels have it."""

_SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time of a zip file, so that equal files make equal wheels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel as bytes. It holds no secret: it is the open source of the agent."""

    name: str
    data: bytes

    @property
    def reference(self) -> AgentWheel:
        """The wheel as machines get it."""
        return AgentWheel(name=self.name, sha256=hashlib.sha256(self.data).hexdigest())


class WheelCache:
    """The wheel of this version, built on first use: most masters have no machine that fetches it."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._wheel: Wheel | None = None

    def wheel(self) -> Wheel:
        """Reads some hundred files the first time. Of two threads that come at once each makes the same."""
        if self._wheel is None:
            self._wheel = agent_wheel(self._version)
        return self._wheel


def agent_wheel(version: str) -> Wheel:
    """A wheel of the installed packages, with the requirements of the installed distribution."""
    about = f"{_FILE_NAME}-{version}.dist-info"
    files = dict(_sources())
    files[f"{about}/METADATA"] = _metadata(version).encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: resolute\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return Wheel(name=f"{_FILE_NAME}-{version}-py3-none-any.whl", data=packed(files, about))


def packed(files: Mapping[str, bytes], about: str) -> bytes:
    """A wheel of these files and their record, which is in the directory `about`. Equal files make equal bytes."""
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    whole = {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(whole.items()):
            entry = zipfile.ZipInfo(name, _SAME_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return wheel.getvalue()


def _sources() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        root = Path(str(package.__file__)).parent
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{root.name}/{file.relative_to(root).as_posix()}", file.read_bytes()
    yield from _notices()


def _notices() -> Iterator[tuple[str, bytes]]:
    """The modules that an agent imports to detect the end of its machine, from each provider's package. An agent does not use the
    rest of these packages."""
    names = {f"{PROVIDERS[provider].package}.notices" for provider in NOTICE_SOURCES.values()}
    parents = {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 1)}
    for module in sorted(names | parents):
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        path = module.replace(".", "/")
        yield f"{path}/__init__.py" if module in parents else f"{path}.py", Path(spec.origin).read_bytes()


def _metadata(version: str) -> str:
    try:
        told = metadata.distribution(DISTRIBUTION).read_text("METADATA")
    except metadata.PackageNotFoundError:
        told = None
    return told or f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
