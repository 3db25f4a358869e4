"""Notes which calls of the released client were answered in a way that it could read. Its own code stays as it is.

Python imports this by itself when the directory is on `PYTHONPATH`. With `RECORD_ACCEPTED=<file>` every function of the client's
bindings that returned (or gave the first item of a stream), and every request past the bindings that was answered with 200, is a
line of JSON in that file: the operation or the path, and who called.
"""

import functools
import importlib.abc
import importlib.util
import inspect
import json
import os
import re
import sys
import urllib.parse

FILE = os.environ.get("RECORD_ACCEPTED")
BINDINGS = "determined.common.api.bindings"
SESSIONS = "requests.sessions"
WORD = re.compile(r"[a-z][a-z-]*")


def command():
    """`det experiment set name` of a command line: its words up to the first that may be somebody's own."""
    words = []
    for argument in sys.argv[1:]:
        if not WORD.fullmatch(argument):
            break
        words.append(argument)
    return " ".join(["det", *words])


def caller():
    """Which public part of the client asked: the outermost of its frames."""
    if os.path.basename(sys.argv[0]) == "det":
        return command()
    found = None
    frame = sys._getframe(2)
    while frame is not None:
        scope = frame.f_globals
        name = scope["__spec__"].name if scope.get("__spec__") else scope.get("__name__", "")
        called = frame.f_code.co_qualname
        if name.startswith("determined.") and name != BINDINGS and "<locals>" not in called:
            found = name.removeprefix("determined.") + ("" if called == "<module>" else f".{called}")
        frame = frame.f_back
    return found or "bindings"


def by_bindings():
    """The call goes through the generated functions, which are noted when they have read the answer."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == BINDINGS:
            return True
        frame = frame.f_back
    return False


def note(**what):
    line = json.dumps({**what, "by": caller()}) + "\n"
    handle = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def recorded(name, call):
    operation = name.partition("_")[2]

    @functools.wraps(call)
    def whole(*args, **kwargs):
        answer = call(*args, **kwargs)
        note(operation=operation)
        return answer

    @functools.wraps(call)
    def streamed(*args, **kwargs):
        noted = False
        for item in call(*args, **kwargs):
            if not noted:
                note(operation=operation)
                noted = True
            yield item
        if not noted:
            note(operation=operation)

    return streamed if inspect.isgeneratorfunction(call) else whole


def watch_bindings(module):
    for name, value in list(vars(module).items()):
        if re.match(r"(get|post|put|patch|delete)_[A-Z]", name) and inspect.isfunction(value):
            setattr(module, name, recorded(name, value))


def watch_sessions(module):
    send = module.Session.send

    @functools.wraps(send)
    def noting(self, request, **kwargs):
        answer = send(self, request, **kwargs)
        path = urllib.parse.urlsplit(request.url).path
        if answer.status_code == 200 and not by_bindings():
            note(method=request.method, path=path)
        return answer

    module.Session.send = noting


WATCHED = {BINDINGS: watch_bindings, SESSIONS: watch_sessions}


class Loader(importlib.abc.Loader):
    def __init__(self, own, watch):
        self.own, self.watch = own, watch

    def create_module(self, spec):
        return self.own.create_module(spec)

    def exec_module(self, module):
        self.own.exec_module(module)
        self.watch(module)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in WATCHED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            spec.loader = Loader(spec.loader, WATCHED[name])
        return spec


if FILE:
    sys.meta_path.insert(0, Finder())
