"""What a cloud tells `det deploy` of itself: the ports, and the parts of the one registration that a cloud has.

A cloud that clusters are deployed on has a package of its own, named in the registry of providers (`resolute.providers`), with
modules of fixed names:

    deployment   `DEPLOYMENT`, what `det deploy` asks
    facts        `FACTS`, how a master's configuration is made of what Terraform tells of its cluster
    machine      `MACHINE`, what the master's machine needs of its cloud
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
"""Key of the tag or label of all that belongs to a cluster; its value is the cluster's name."""
FOLDER = "cluster"
"""Of the cluster's bucket: what `det deploy` and the master's machine tell each other."""
CHECKPOINTS = "checkpoints"
"""Of the cluster's bucket: what tasks keep."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found. `fatal` ones end `up` before anything is made; others are warnings."""

    text: str
    fatal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something of the cluster that is still there, and how it is removed."""

    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyCost:
    """Dollars an hour, without disks, traffic and the database where its price is not known; None where a price is not known."""

    idle: float | None
    full: float | None


def hourly_cost(master: float | None, pools: Sequence[Sequence[float | None]], kept: int, most: int) -> HourlyCost:
    """Of machines at their prices on demand: the master and `kept` machines of each pool run, or `most` of its dearest type.

    `pools` has the prices of each pool's types.
    """
    dearest = [None if None in prices else max(price for price in prices if price is not None) for prices in pools]
    if master is None or None in dearest:
        return HourlyCost(idle=master if kept == 0 else None, full=None)
    each = sum(price for price in dearest if price is not None)
    return HourlyCost(idle=master + kept * each, full=master + most * each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What a killed Terraform has made and not written down. `remove` ends it, and returns when it is gone."""

    what: str
    remove: Callable[[], object]


Known = frozenset[tuple[str, str]]
"""Type and id of each resource of a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A resource that a plan makes, without the values that are known only when others are made."""

    type: str
    values: Mapping[str, Any]
    address: str = ""
    """In the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """What a plan makes and what is there already. `id` is the one by which Terraform takes it over."""

    what: str
    address: str
    id: str


# -------------------------------------------------------------------------------------------------------- bucket and secrets


class ClusterBucket(Protocol):
    """Documents by which `det deploy` and the master's machine tell each other what is wanted and what is."""

    def desired(self) -> tuple[str, dict[str, Any]]:
        """`cluster/desired.json`: its version and itself."""
        ...

    def get(self, key: str) -> bytes:
        """An object of the bucket by its whole key."""
        ...

    def found(self, name: str) -> bytes | None:
        """A document of the folder; None while it is not there."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Writes a document of the folder."""
        ...


class SecretStore(Protocol):
    """The cloud's store of secrets, each under the name that the cloud gives it."""

    def value(self, secret: str) -> str: ...

    def value_or_new(self, secret: str, make: Callable[[], str]) -> str:
        """The value, made where there is none yet."""
        ...


# ------------------------------------------------------------------------------------------------------------------ account


class Account(ABC):
    """What is looked at before a cluster is made, and ended and looked for when it is taken away."""

    region: str

    @abstractmethod
    def check(self) -> None:
        """Raises `InvalidInput` where the credentials do not open the account."""

    @abstractmethod
    def preflight(self, values: Mapping[str, Any], *, new: bool) -> list[Finding]:
        """Every finding at once. Raises `InvalidInput` where the account cannot be asked at all."""

    @abstractmethod
    def machines(self, cluster_id: str, *, besides: str = "") -> list[str]:
        """Names of the cluster's machines that are not ended."""

    @abstractmethod
    def end(self, machines: Sequence[str]) -> None:
        """Ends machines, and returns when they are gone."""

    @abstractmethod
    def cancel_requests(self, cluster_id: str) -> None:
        """Requests that would bring more machines, where the cloud keeps such."""

    @abstractmethod
    def bucket(self, name: str) -> ClusterBucket: ...

    @abstractmethod
    def secrets(self) -> SecretStore: ...

    @abstractmethod
    def holds_checkpoints(self, bucket: str) -> bool: ...

    @abstractmethod
    def empty(self, bucket: str, prefix: str = "") -> int:
        """Removes all versions of all objects below a prefix; gives their number."""

    @abstractmethod
    def left(self, cluster_id: str) -> Iterator[Left]:
        """What belongs to the cluster and is still there."""

    @abstractmethod
    def orphans(self, cluster_id: str, known: Known) -> Iterator[Orphan]:
        """What is in no state, in the order in which it can be removed: what stands in another before that."""

    def orphaned_parts(self, planned: Sequence[Planned]) -> Iterator[Orphan]:
        """What is in no state and in no list of `orphans`: a plan that is about to make it again names it.

        Nothing, where a cloud has no such check.
        """
        return iter(())

    def existing_parts(self, planned: Sequence[Planned]) -> Iterator[Existing]:
        """What is in no state and in no list of `orphans`, and is taken over where `orphaned_parts` would be removed.

        Nothing, where a cloud has no such check.
        """
        return iter(())

    @abstractmethod
    def making_bucket(self, name: str) -> str | None:
        """The command that makes a bucket; None where it is there."""

    @abstractmethod
    def kept_bucket(self, cluster_id: str) -> str | None:
        """The id by which Terraform takes over the cluster's bucket; None where there is none."""

    @abstractmethod
    def console_command(self, machine: str) -> str:
        """Shows what a machine says while it boots."""


def in_the_way(account: Account, cluster_id: str) -> list[Left]:
    """What a new cluster would meet under its name. A bucket that an earlier `down` has kept is taken over."""
    return [each for each in account.left(cluster_id) if not each.what.startswith("bucket ")]


def refuse_lost_state(account: Account, terraform: Terraform, cluster_id: str, *, seen: bool) -> None:
    """Before `remove_orphans` of an `up`: a state that holds nothing makes orphans of all that a cluster has.

    An interrupted first run leaves parts that are recorded nowhere, and never a machine or a database with what people have
    stored: by then there is a whole copy of its state (`state_copy`). `seen` says whether this directory has run `up` for the
    cluster before. Raises `InvalidInput`.
    """
    if any(not each.startswith("data.") and ".data." not in each for each in terraform.resources()):
        return
    found = in_the_way(account, cluster_id)
    if not (found and (not seen or any(each.what.startswith(("machine ", "database ")) for each in found))):
        return
    named = f"{', '.join(each.what for each in found[:3])}{', ...' if len(found) > 3 else ''}"
    advice = (
        "restore the state, or remove what there is with `down`"
        if seen
        else "give the --state-path or --state-bucket that it was made with, or take another name"
    )
    raise InvalidInput(
        f"--cluster-id {cluster_id}: there is a cluster of that name ({named}), and the state here holds nothing of it; {advice}"
    )


def remove_orphans(
    account: Account, terraform: Terraform, bucket_resource: str, cluster_id: str, told: Callable[[str], None]
) -> None:
    """Before an apply or a destroy.

    Terraform records a resource when it is complete. One that it was making when it was killed carries the cluster's mark or
    name and is in no state: the next run would make it again, and fail on its name or leave it behind. Such orphans are
    incomplete and unused, so they are removed before Terraform runs. A bucket is taken over instead: it may be the one that an
    earlier `down` has kept with its checkpoints.
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
    """After `remove_orphans`, between a plan and its apply: see `remove_planned`. True where a new plan is to be made."""
    found = list(account.existing_parts(planned_resources(plan)))
    for each in found:
        told(f"taking over {each.what}, which an interrupted run has left")
        terraform.adopt(each.address, each.id)
    return bool(found)


def remove_planned(account: Account, plan: Mapping[str, Any], told: Callable[[str], None]) -> None:
    """After `remove_orphans`, between a plan and its apply.

    A killed Terraform may have made a part of a resource that the state has, such as a route of a recorded route table, and not
    written the part down. Clouds refuse to make it again. It is removed, and the plan, which makes it, stays right.
    """
    for orphan in account.orphaned_parts(planned_resources(plan)):
        told(f"removing {orphan.what}, which an interrupted run has left")
        orphan.remove()


def planned_resources(plan: Mapping[str, Any]) -> tuple[Planned, ...]:
    """Those that a plan makes and that the state does not have, of a plan as `terraform show -json` has it."""
    return tuple(
        Planned(type=each["type"], values=each["change"]["after"], address=each["address"])
        for each in plan.get("resource_changes", ())
        if each["mode"] == "managed" and each["change"]["actions"] == ["create"]
    )


def known_resources(state: Mapping[str, Any]) -> Known:
    """Of a state as `terraform show -json` has it. A database of RDS is known by its identifier."""
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
    """A cloud as `det deploy` sees it beside its Terraform modules."""

    account: Callable[[Mapping[str, Any]], Account]
    """Opens the account that some variables name. Raises `InvalidInput` where none can be opened."""
    hourly_cost: Callable[[Mapping[str, Any], str], HourlyCost]
    """Of variables and a region."""
    emulated: Callable[[Mapping[str, str]], Mapping[str, Any]]
    """Variables of the module for an emulator of the cloud that an environment names."""
    backend: Callable[[str, Mapping[str, Any], str], Mapping[str, Any]]
    """Of the bucket, the variables with the region, and the cluster's name: the backend of a state that is kept there."""
    explained: Callable[[Exception], str | None]
    """A refusal of the cloud in one sentence; None for every other error."""
    hidden: frozenset[str] = frozenset()
    """Variables that are no flags."""
    bucket_resource: str
    """Address of the cluster's bucket."""
    slow: Mapping[str, str]
    """How long types of resources take that take long."""
    oldest_for_bucket: tuple[int, ...] = ()
    """The oldest Terraform that has a lock for a state in a bucket; empty where each has."""
    listed: Mapping[str, str]
    """Columns of `list`, and the variables that they show."""
    aliases: Mapping[str, str]
    """Other names of the flags of all clouds, as the original has them on this one."""

    def flags(self, flag: str) -> tuple[str, ...]:
        return (flag, self.aliases[flag]) if flag in self.aliases else (flag,)


def deployment(cloud: str) -> Deployment:
    found: Deployment = deployment_part(cloud, "deployment", "DEPLOYMENT")
    return found


def clouds() -> Mapping[str, str]:
    """Titles of the clouds that clusters are deployed on, by their names."""
    return {name: each.deployment.title for name, each in PROVIDERS.items() if each.deployment is not None}


class Facts(Protocol):
    """How a master's configuration is made of the facts of its cluster."""

    def storage(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`checkpoint_storage`."""
        ...

    def provider(self, facts: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Any]:
        """`provider` of a pool, beside what is the same on all clouds."""
        ...

    def setup(self, facts: Mapping[str, Any]) -> Sequence[str]:
        """Commands of bash that bring a container engine onto a machine."""
        ...

    def environment(self, facts: Mapping[str, Any]) -> Sequence[str]:
        """`NAME=value` for every task."""
        ...


def facts_of(cloud: str) -> Facts:
    found: Facts = deployment_part(cloud, "facts", "FACTS")
    return found


class LogStream(Protocol):
    """Where lines of a log go."""

    def send(self, lines: Sequence[tuple[int, str]]) -> bool:
        """`lines` with their times in milliseconds. False where they are to be sent again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMachine:
    """What the master's machine needs of its cloud. Needs what the boot script installs, and the standard library."""

    bucket: Callable[[str], ClusterBucket]
    secrets: Callable[[], SecretStore]
    own_addresses: Callable[[], Sequence[str]]
    database_password: Callable[[SecretStore, Mapping[str, Any]], str]
    """Of the facts of the database. Where the cloud makes no password, it is made and set here."""
    log_stream: Callable[[str], LogStream]
    passed_variables: tuple[str, ...]
    """Variables of the machine's environment that the master gets as well."""


def cloud_machine(cloud: str) -> CloudMachine:
    found: CloudMachine = deployment_part(cloud, "machine", "MACHINE")
    return found


def with_defaults(values: Mapping[str, Any], variables: Sequence[Variable], account: Account) -> dict[str, Any]:
    """With the defaults of the module, and the region that the account's configuration has."""
    defaults = {each.name: each.default for each in variables if not each.required}
    return {**defaults, **values, "region": account.region}
