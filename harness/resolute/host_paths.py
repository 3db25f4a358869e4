"""Which paths of a machine an experiment may name: for `bind_mounts`, storage and devices. Standard library only.

A path reaches another when it is that path, is inside it, or contains it. A path is looked at as it is written (without `..`
and doubled slashes) and as this machine resolves it, so that no symbolic link leads around a rule.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

SYSTEM_PATHS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/postgresql",
    "/var/lib/resolute",
    "/var/lib/resolute-agent",
    "/var/run",
    "/var/spool",
)
"""Programs, configuration, keys, devices and sockets of a machine: no experiment names them unless its operator lists them."""

DEVICES = (
    "/dev/accel*",
    "/dev/dri",
    "/dev/dri/*",
    "/dev/infiniband",
    "/dev/infiniband/*",
    "/dev/kfd",
    "/dev/neuron*",
    "/dev/nvidia*",
)
"""Accelerators and their network: what `resources.devices` may name unless the operator lists others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPathRules:
    """The rules of one master or agent. `state` maps its own paths to what they hold; no list allows these.

    `allowed` None allows every path that reaches neither `state` nor `SYSTEM_PATHS`; a list allows only what is at or below
    its entries. `configured` are the paths that the operator gives to every task, such as the cluster's storage; they may lie
    inside of `state`. `remedy` names the key that allows more.
    """

    state: dict[str, str] = field(default_factory=dict)
    allowed: Collection[str] | None = None
    configured: Collection[str] = ()
    remedy: str

    def why_not(self, path: str) -> str:
        """Why `path` may not be named, with what to do; empty when it may. Looks at the file system."""
        if "\0" in path or not path.startswith("/"):
            return f"{path!r} must be an absolute path of the machine"
        return next(filter(None, (self._why_not(form) for form in forms(path))), "")

    def why_not_resolved(self, real: str) -> str:
        """The reason for the path of an open file descriptor, which is not resolved again; "" if it is allowed."""
        return self._why_not(real)

    def why_not_state(self, path: str) -> str:
        """Why `path` must not even be read: it reaches `state`; otherwise "". For paths that were accepted under other rules than
        the present ones."""
        return next(filter(None, (self._reached(form) for form in forms(path))), "")

    def _why_not(self, path: str) -> str:
        if problem := self._reached(path):
            return problem
        if any(contains(form, path) for one in (*self.configured, *(self.allowed or ())) for form in forms(one)):
            return ""
        if self.allowed is not None:
            return f"{path} is not among the paths that experiments may name; {self.remedy}"
        for system in SYSTEM_PATHS:
            for form in forms(system):
                if reaches(path, form):
                    return f"{path} reaches {system}, a part of the machine's system; name another directory, or {self.remedy}"
        return ""

    def _reached(self, path: str) -> str:
        configured = [form for one in self.configured for form in forms(one)]
        if path in configured:
            return ""
        opened = [*configured, *(form for one in self.allowed or () for form in forms(one))]
        for own, what in self.state.items():
            for form in forms(own):
                inside = any(contains(one, path) and strictly_contains(form, one) for one in opened)
                if reaches(path, form) and not inside:
                    return f"{path} reaches {form}, which holds {what}; name another directory"
        return ""


def why_not_device(path: str, allowed: Iterable[str], remedy: str) -> str:
    """Why `resources.devices` may not name `path`; empty when it may. `allowed` are the operator's patterns."""
    written = normal(path)
    if any(fnmatchcase(written, pattern) for pattern in allowed):
        return ""
    return f"{written} is not among the devices that experiments may name; {remedy}"


def forms(path: str) -> tuple[str, ...]:
    """The path as it is written and as this machine resolves it, each once."""
    written = normal(path)
    try:
        return tuple(dict.fromkeys((written, os.path.realpath(path))))
    except OSError:  # a link that this process may not read, in /proc for example
        return (written,)


def normal(path: str) -> str:
    """Without `..`, `.` and doubled slashes, also at the beginning."""
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)


def contains(outer: str, inner: str) -> bool:
    """Whether `inner` is `outer` or is inside it."""
    return inner == outer or strictly_contains(outer, inner)


def strictly_contains(outer: str, inner: str) -> bool:
    return inner != outer and inner.startswith(outer if outer.endswith("/") else f"{outer}/")


def reaches(path: str, other: str) -> bool:
    """Whether one of the two is, or is inside, the other."""
    return contains(path, other) or contains(other, path)
