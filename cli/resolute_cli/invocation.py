"""The inputs of a running command: variables, streams, and a login on demand."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from resolute import printable
from resolute.errors import InvalidInput
from resolute_cli.render import Renderer

if TYPE_CHECKING:
    from resolute.client.api import Api
    from resolute.client.session import Session
    from resolute.client.token_cache import TokenCache


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One run of a command. It opens a session on first use and closes it at the end."""

    environ: Mapping[str, str]
    render: Renderer
    stdin: TextIO
    given_master: str | None = None
    given_user: str | None = None
    _opened: list[Session] = field(default_factory=list)
    _api: Api | None = None

    @property
    def master(self) -> str:
        """The canonical address of the master."""
        from resolute.client.address import address_from

        return address_from(self.environ, self.given_master)

    def anonymous(self) -> Session:
        """A session without a login."""
        from resolute.client.authentication import anonymous_session

        session = anonymous_session(self.master, self.environ)
        self._opened.append(session)
        return session

    def api(self) -> Api:
        """Every call of the API, logged in. It prompts for a password if necessary."""
        if self._api is None:
            from resolute.client.api import Api
            from resolute.client.authentication import authenticate
            from resolute.client.cluster import Cluster

            session = self.anonymous()
            Cluster(session).info()  # asked once: without a master the answer must not take five attempts
            authenticate(
                session, user=self.given_user, ask_password=self.ask_password, environ=self.environ, cache=self.tokens()
            )
            self._api = Api(session)
        return self._api

    def tokens(self) -> TokenCache:
        """Stored logins of this user of the machine."""
        from resolute.client.token_cache import TokenCache, configuration_directory

        return TokenCache(configuration_directory(self.environ))

    def ask_password(self, prompt: str) -> str:
        """Reads a password without showing it. Raises `InvalidInput` without a terminal."""
        if not self.stdin.isatty():
            raise InvalidInput("a password is needed and there is no terminal for a prompt; set DET_USER and DET_PASS")
        return getpass.getpass(printable.one_line(prompt), stream=self.render.err)

    def new_password(self, user: str) -> str:
        """Prompts twice for a new password."""
        first = self.ask_password(f"New password for user '{user}': ")
        if first != self.ask_password(f"New password for user '{user}' again: "):
            raise InvalidInput("the two passwords differ; nothing was changed")
        return first

    def close(self) -> None:
        for session in self._opened:
            session.close()


def system_invocation(environ: Mapping[str, str]) -> Invocation:
    """An invocation on the process's own streams."""
    return Invocation(environ=environ, render=Renderer(sys.stdout, sys.stderr), stdin=sys.stdin)
