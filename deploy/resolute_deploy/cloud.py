"""The ports between `det deploy` and a cloud, and the registration of a cloud.

A cloud that clusters are deployed on has a package of its own, named in the registry of providers (`resolute.providers`), with
modules of fixed names:

    deployment   `DEPLOYMENT`, the interface that `det deploy` calls
    facts        `FACTS`, the parts of a master's configuration that depend on the cloud
    machine      `MACHINE`, the services of the cloud that the master's machine uses
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from resolute.errors import InvalidInput
from resolute.providers import PROVIDERS, deployment_part
from resolute_deploy.terraform import Terraform
from resolute_deploy.variables import Variable

MARK = "resolute-deployment"
"""Key of the tag or label on every resource of a cluster; its value is the cluster's name."""
FOLDER = "cluster"
"""Prefix in the cluster's bucket for the documents that `det deploy` and the master's machine exchange."""
CHECKPOINTS = "checkpoints"
"""Prefix in the cluster's bucket for the files of tasks."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check. A `fatal` one ends `up` before anything is created; others are warnings."""

    text: str
    fatal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A resource of the cluster that still exists, and the command that removes it."""

    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyCost:
    """Dollars an hour, without disks, traffic and the database where its price is not known; None where a price is not known."""

    idle: float | None
    full: float | None


def hourly_cost(master: float | None, pools: Sequence[Sequence[float | None]], kept: int, most: int) -> HourlyCost:
    """The cost at on-demand prices. `idle`: the master and `kept` machines of each pool. `full`: the master and `most` machines
    of the most expensive type of each pool.

    `pools` has the prices of each pool's types.
    """
    dearest = [None if None in prices else max(price for price in prices if price is not None) for prices in pools]
    if master is None or None in dearest:
        return HourlyCost(idle=master if kept == 0 else None, full=None)
    each = sum(price for price in dearest if price is not None)
    return HourlyCost(idle=master + kept * each, full=master + most * each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A resource that a killed Terraform created and did not record. `remove` deletes it, and returns when it no longer exists."""

    what: str
    remove: Callable[[], object]


Known = frozenset[tuple[str, str]]
"""Type and id of each resource of a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A resource that a plan creates, without the values that are known only after other resources exist."""

    type: str
    values: Mapping[str, Any]
    address: str = ""
    """In the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """A resource that a plan creates although it exists already. `id` is the one by which Terraform imports it."""

    what: str
    address: str
    id: str


# -------------------------------------------------------------------------------------------------------- bucket and secrets


class ClusterBucket(Protocol):
    """Documents with the desired and the actual state, which `det deploy` and the master's machine exchange."""

    def desired(self) -> tuple[str, dict[str, Any]]:
        """`cluster/desired.json`: its version and itself."""
        ...

    def get(self, key: str) -> bytes:
        """An object of the bucket by its whole key."""
        ...

    def found(self, name: str) -> bytes | None:
        """A document of the folder; None if it does not exist."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Writes a document of the folder."""
        ...


class SecretStore(Protocol):
    """The cloud's secret store; each secret has the name that the cloud gives it."""

    def value(self, secret: str) -> str: ...

    def value_or_new(self, secret: str, make: Callable[[], str]) -> str:
        """The value; it is created if there is none yet."""
        ...


# ------------------------------------------------------------------------------------------------------------------ account


class Account(ABC):
    """Checks before a cluster is created, and the resources to remove when it is destroyed."""

    region: str

    @abstractmethod
    def check(self) -> None:
        """Raises `InvalidInput` if the account does not accept the credentials."""

    @abstractmethod
    def preflight(self, values: Mapping[str, Any], *, new: bool) -> list[Finding]:
        """All findings together. Raises `InvalidInput` if the account cannot be read."""

    @abstractmethod
    def machines(self, cluster_id: str, *, besides: str = "") -> list[str]:
        """Names of the cluster's machines that are not terminated."""

    @abstractmethod
    def end(self, machines: Sequence[str]) -> None:
        """Terminates machines, and returns when they no longer exist."""

    @abstractmethod
    def cancel_requests(self, cluster_id: str) -> None:
        """Open requests for more machines, on a cloud that stores them."""

    @abstractmethod
    def bucket(self, name: str) -> ClusterBucket: ...

    @abstractmethod
    def secrets(self) -> SecretStore: ...

    @abstractmethod
    def holds_checkpoints(self, bucket: str) -> bool: ...

    @abstractmethod
    def empty(self, bucket: str, prefix: str = "") -> int:
        """Removes all versions of all objects below a prefix, and returns their number."""

    @abstractmethod
    def left(self, cluster_id: str) -> Iterator[Left]:
        """The resources of the cluster that still exist."""

    @abstractmethod
    def orphans(self, cluster_id: str, known: Known) -> Iterator[Orphan]:
        """Resources that no state records, in the order in which they can be removed: a contained resource before its container."""

    def orphaned_parts(self, planned: Sequence[Planned]) -> Iterator[Orphan]:
        """Resources that no state records and `orphans` does not list: a plan would create them again.

        Empty for a cloud without such a check.
        """
        return iter(())

    def existing_parts(self, planned: Sequence[Planned]) -> Iterator[Existing]:
        """Resources as in `orphaned_parts`, except that Terraform imports them instead of removing them.

        Empty for a cloud without such a check.
        """
        return iter(())

    @abstractmethod
    def making_bucket(self, name: str) -> str | None:
        """The command that creates a bucket; None if it exists."""

    @abstractmethod
    def kept_bucket(self, cluster_id: str) -> str | None:
        """The id by which Terraform imports the cluster's bucket; None if there is none."""

    @abstractmethod
    def console_command(self, machine: str) -> str:
        """The command that prints a machine's boot output."""


def in_the_way(account: Account, cluster_id: str) -> list[Left]:
    """Existing resources under the name of a new cluster. A bucket that an earlier `down` kept is imported instead."""
    return [each for each in account.left(cluster_id) if not each.what.startswith("bucket ")]


def refuse_lost_state(account: Account, terraform: Terraform, cluster_id: str, *, seen: bool) -> None:
    """Refuses an `up` with an empty state if the cluster has resources: `remove_orphans` would delete all of them.

    An interrupted first run leaves unrecorded parts, but never a machine or a database with data of users: by then there is a
    complete copy of the state (`state_copy`). `seen` is true if this directory has run `up` for the cluster before. Raises
    `InvalidInput`.
    """
    if any(not each.startswith("data.") and ".data." not in each for each in terraform.resources()):
        return
    found = in_the_way(account, cluster_id)
    if not (found and (not seen or any(each.what.startswith(("machine ", "database ")) for each in found))):
        return
    named = f"{', '.join(each.what for each in found[:3])}{', ...' if len(found) > 3 else ''}"
    advice = (
        "restore the state, or remove the cluster with `down`"
        if seen
        else "give the --state-path or --state-bucket that it was created with, or choose another name"
    )
    raise InvalidInput(
        f"--cluster-id {cluster_id}: there is a cluster of that name ({named}), and the state here does not contain it; {advice}"
    )


def remove_orphans(
    account: Account, terraform: Terraform, bucket_resource: str, cluster_id: str, told: Callable[[str], None]
) -> None:
    """Removes orphans before an apply or a destroy.

    Terraform records a resource when it is complete. A resource that a killed Terraform was creating carries the cluster's mark or
    name and is in no state: the next run would create it again, and fail on its name or leave it behind. Such orphans are
    incomplete and unused, so they are removed before Terraform runs. A bucket is imported instead: it may be the one that an
    earlier `down` kept with its checkpoints.
    """
    terraform.wait_for_earlier_run(told)
    terraform.check_lock()
    known = known_resources(terraform.state())
    for orphan in account.orphans(cluster_id, known):
        told(f"removing {orphan.what}, which an interrupted run has left")
        orphan.remove()
    bucket = account.kept_bucket(cluster_id)
    if bucket is not None and (bucket_resource.split(".")[-2], bucket) not in known:
        told(f"taking over the bucket {bucket}")
        terraform.adopt(bucket_resource, bucket)


def take_over_planned(
    account: Account, terraform: Terraform, plan: Mapping[str, Any], told: Callable[[str], None]
) -> bool:
    """Imports unrecorded resources between a plan and its apply, like `remove_planned`. Returns true if a new plan is necessary."""
    found = list(account.existing_parts(planned_resources(plan)))
    for each in found:
        told(f"taking over {each.what}, which an interrupted run has left")
        terraform.adopt(each.address, each.id)
    return bool(found)


def remove_planned(account: Account, plan: Mapping[str, Any], told: Callable[[str], None]) -> None:
    """Removes unrecorded parts of recorded resources, between a plan and its apply.

    A killed Terraform may have created a part of a recorded resource, such as a route of a route table, without recording the
    part. Clouds refuse to create it again. The part is removed, and the plan, which creates it, stays valid.
    """
    for orphan in account.orphaned_parts(planned_resources(plan)):
        told(f"removing {orphan.what}, which an interrupted run has left")
        orphan.remove()


def planned_resources(plan: Mapping[str, Any]) -> tuple[Planned, ...]:
    """The resources that a plan creates, from the output of `terraform show -json`."""
    return tuple(
        Planned(type=each["type"], values=each["change"]["after"], address=each["address"])
        for each in plan.get("resource_changes", ())
        if each["mode"] == "managed" and each["change"]["actions"] == ["create"]
    )


def known_resources(state: Mapping[str, Any]) -> Known:
    """Type and id of the resources of a state, from the output of `terraform show -json`. A database of RDS has its identifier."""
    found: set[tuple[str, str]] = set()
    modules = [state.get("values", {}).get("root_module", {})]
    while modules:
        module = modules.pop()
        modules += module.get("child_modules", ())
        for resource in module.get("resources", ()):
            if resource["mode"] == "managed":
                values = resource["values"]
                found.add((resource["type"], str(values.get("identifier") or values.get("id"))))
    return frozenset(found)


# ------------------------------------------------------------------------------------------------------------- the registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The interface of a cloud to `det deploy`, beside its Terraform modules."""

    account: Callable[[Mapping[str, Any]], Account]
    """Opens the account that the variables name. Raises `InvalidInput` if it cannot be opened."""
    hourly_cost: Callable[[Mapping[str, Any], str], HourlyCost]
    """Arguments: variables and a region."""
    emulated: Callable[[Mapping[str, str]], Mapping[str, Any]]
    """Variables of the module for an emulator of the cloud; the environment names the emulator."""
    backend: Callable[[str, Mapping[str, Any], str], Mapping[str, Any]]
    """The backend of a state in a bucket. Arguments: the bucket, the variables with the region, and the cluster's name."""
    explained: Callable[[Exception], str | None]
    """A refusal of the cloud in one sentence; None for every other error."""
    hidden: frozenset[str] = frozenset()
    """Variables that have no flag."""
    bucket_resource: str
    """Address of the cluster's bucket."""
    slow: Mapping[str, str]
    """Usual durations of the slow types of resources."""
    oldest_for_bucket: tuple[int, ...] = ()
    """The oldest Terraform that can lock a state in a bucket; empty if every version can."""
    listed: Mapping[str, str]
    """Columns of `list`, and the variables that they show."""
    aliases: Mapping[str, str]
    """Further names of common flags, which the original has on this cloud."""

    def flags(self, flag: str) -> tuple[str, ...]:
        return (flag, self.aliases[flag]) if flag in self.aliases else (flag,)


def deployment(cloud: str) -> Deployment:
    found: Deployment = deployment_part(cloud, "deployment", "DEPLOYMENT")
    return found


def clouds() -> Mapping[str, str]:
    """Titles of the clouds that support `det deploy`, by name."""
    return {name: each.deployment.title for name, each in PROVIDERS.items() if each.deployment is not None}


class Facts(Protocol):
    """Renders the parts of a master's configuration that depend on the cloud, from the facts of its cluster."""

    def storage(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`checkpoint_storage`."""
        ...

    def provider(self, facts: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Any]:
        """`provider` of a pool, without the keys that all clouds share."""
        ...

    def setup(self, facts: Mapping[str, Any]) -> Sequence[str]:
        """Bash commands that install a container engine on a machine."""
        ...

    def environment(self, facts: Mapping[str, Any]) -> Sequence[str]:
        """`NAME=value` for every task."""
        ...


def facts_of(cloud: str) -> Facts:
    found: Facts = deployment_part(cloud, "facts", "FACTS")
    return found


class LogStream(Protocol):
    """A destination of log lines."""

    def send(self, lines: Sequence[tuple[int, str]]) -> bool:
        """Sends `lines` with their times in milliseconds. Returns false if they must be sent again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMachine:
    """The cloud services that the master's machine uses. Imports the standard library and the packages of the boot script only."""

    bucket: Callable[[str], ClusterBucket]
    secrets: Callable[[], SecretStore]
    own_addresses: Callable[[], Sequence[str]]
    database_password: Callable[[SecretStore, Mapping[str, Any]], str]
    """The password of the database, from its facts. If the cloud creates none, this creates and sets one."""
    log_stream: Callable[[str], LogStream]
    passed_variables: tuple[str, ...]
    """Environment variables of the machine that are passed to the master."""


def cloud_machine(cloud: str) -> CloudMachine:
    found: CloudMachine = deployment_part(cloud, "machine", "MACHINE")
    return found


def with_defaults(values: Mapping[str, Any], variables: Sequence[Variable], account: Account) -> dict[str, Any]:
    """The variables with the defaults of the module, and the region of the account's configuration."""
    defaults = {each.name: each.default for each in variables if not each.required}
    return {**defaults, **values, "region": account.region}
