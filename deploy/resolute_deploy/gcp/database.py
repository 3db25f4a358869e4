"""The password of the master's user in Cloud SQL. The master's machine creates it, so that no Terraform state contains it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from resolute.errors import ResoluteError
from resolute_cli.passwords import new_password
from resolute_deploy.cloud import SecretStore
from resolute_deploy.gcp.api import GoogleApi

OPERATION_S = 300.0
POLL_S = 2.0


class DatabaseUser:
    """Sets the user's password if it differs from the one that was set last."""

    def __init__(
        self,
        api: Callable[[], GoogleApi],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._clock = clock
        self._sleep = sleep
        self._set: tuple[str, str] | None = None

    def password(self, store: SecretStore, database: Mapping[str, Any]) -> str:
        """The password, from the facts of the database. It writes the secret first, so that an interrupted machine can continue."""
        secret, instance = database["password_secret"], database["instance"]
        if instance is None:
            return store.value(secret)
        password = store.value_or_new(secret, new_password)
        if self._set != (instance, password):
            self._write(f"v1/projects/{database['project']}/instances/{instance}", database["user"], password)
            self._set = (instance, password)
        return password

    def _write(self, instance: str, user: str, password: str) -> None:
        api = self._api()
        known = {each["name"] for each in api.get("sqladmin", f"{instance}/users").get("items", [])}
        body = {"name": user, "password": password}
        if user in known:
            told = api.put("sqladmin", f"{instance}/users", body, name=user)
        else:
            told = api.post("sqladmin", f"{instance}/users", body)
        operation = f"{instance.rsplit('/', 2)[0]}/operations/{told['name']}"
        end = self._clock() + OPERATION_S
        while told.get("status") != "DONE":
            if self._clock() > end:
                raise ResoluteError(f"Cloud SQL does not set the password of {user} within {OPERATION_S:.0f} s")
            self._sleep(POLL_S)
            told = api.get("sqladmin", operation)
        errors = told.get("error", {}).get("errors", [])
        if errors:
            raise ResoluteError(f"Cloud SQL does not set the password of {user}: {errors[0].get('message', errors[0])}")
