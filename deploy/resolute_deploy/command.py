"""`det deploy aws` and `det deploy gcp`: the verbs, their flags and their output."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.render import confirmed, price_text, yaml_text
from resolute_deploy.cloud import (
    Account,
    Deployment,
    HourlyCost,
    clouds,
    deployment,
    refuse_lost_state,
    remove_orphans,
    remove_planned,
    take_over_planned,
    with_defaults,
)
from resolute_deploy.cluster_directory import (
    ClusterDirectory,
    default_state_path,
    known_clusters,
    module_variables,
)
from resolute_deploy.lifecycle import (
    Deployed,
    DeployFailed,
    deployed,
    prepared,
    take_down,
    wait_until_ready,
)
from resolute_deploy.master_config import checked_master_config
from resolute_deploy.own_wheel import own_wheel
from resolute_deploy.terraform import Step, Terraform
from resolute_deploy.variables import add_flags, given_values, missing

PLAN = "plan.out"
"""File of the plan, in the working copy of the module."""


Run = Callable[[Invocation, argparse.Namespace], None]


class Deploy:
    """The verbs of one cloud."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def cloud(self) -> Deployment:
        """Imported when a verb runs."""
        return deployment(self.name)

    def up(self, cli: Invocation, args: argparse.Namespace) -> None:
        cluster, variables = self._cluster(cli, args), module_variables(self.name)
        before = cluster.given()
        given = {**before, **given_values(args, variables)}
        own = "wheel" not in given
        if own:
            given["wheel"] = str(cluster.wheels)  # built after all checks have passed: it takes seconds
        lacking = missing(given, variables)
        if lacking:
            raise InvalidInput(
                f"a new cluster needs {', '.join(each.flag for each in lacking)}; "
                f"`det deploy {self.name} up --help` describes them"
            )
        cluster.check(given, cli.environ)
        account = self.cloud.account(given)
        values = with_defaults(given, variables, account)
        cost = self.cloud.hourly_cost(values, account.region)
        state_bucket = cluster.state_bucket(args.state_bucket)
        _look_before(cli, args, account, values, cost, new=not before and not state_bucket)
        if own:
            given["wheel"] = str(own_wheel(cluster.wheels))
        given["region"] = account.region
        terraform = self._prepared(cli, args, cluster, given)
        if not args.dry_run:
            terraform.wait_for_earlier_run(cli.render.note)
            refuse_lost_state(account, terraform, cluster.cluster_id, seen=bool(before))
            cluster.keep_state_bucket(state_bucket)
            cluster.keep({name: value for name, value in given.items() if not (own and name == "wheel")})
            remove_orphans(account, terraform, self.cloud.bucket_resource, cluster.cluster_id, cli.render.note)
        plan = terraform.plan(PLAN)
        if not args.dry_run and take_over_planned(account, terraform, plan, cli.render.note):
            plan = terraform.plan(PLAN)
        changes = _changes(plan)
        if args.dry_run:
            _show_plan(cli, changes)
            if not before:
                cluster.forget()
            return
        remove_planned(account, plan, cli.render.note)
        steps = _Steps(cli, sum(changes.values()), self.cloud.slow)
        terraform.apply(steps.told, PLAN)
        outputs = terraform.outputs()
        if args.no_wait_for_master:
            cli.render.success(
                f"Cluster {cluster.cluster_id} is made; its master will serve at {outputs['master_url']}"
            )
            return
        stages = wait_until_ready(account, cluster, outputs, cli.render.note)
        _say_what_next(cli, cluster, deployed(account, cluster, outputs, stages), cost)

    def down(self, cli: Invocation, args: argparse.Namespace) -> None:
        cluster = self._cluster(cli, args)
        given = cluster.given()
        if not given:
            raise InvalidInput(
                f"--cluster-id {cluster.cluster_id}: there is no such cluster in {cluster.path}; "
                f"`det deploy {self.name} list` lists the clusters"
            )
        if not args.yes and not confirmed(_question(cluster, args.delete_checkpoints), cli.render, cli.stdin):
            cli.render.note("Nothing was changed.")
            return
        account = self.cloud.account(given)
        account.check()
        terraform = self._prepared(cli, args, cluster, _looked_at(cluster))
        managed = [each for each in terraform.resources() if ".data." not in each and not each.startswith("data.")]
        left = take_down(
            self.cloud,
            account,
            cluster,
            terraform,
            delete_checkpoints=args.delete_checkpoints,
            told=cli.render.note,
            step=_Steps(cli, len(managed), self.cloud.slow).told,
        )
        kept = [each for each in left if each.what.startswith("bucket ")]
        if len(left) > len(kept) or (kept and args.delete_checkpoints):
            lines = "\n".join(f"  {each.what}: {each.command}" for each in left)
            raise DeployFailed(
                f"these are left of cluster {cluster.cluster_id}; end them by hand, or run `down` again:\n{lines}"
            )
        cluster.forget()
        for each in kept:
            cli.render.note(f"Kept with its checkpoints: {each.what}. `{each.command}` removes it.")
        cli.render.success(f"Cluster {cluster.cluster_id} is gone; nothing else of it is left in {account.region}.")

    def show_list(self, cli: Invocation, args: argparse.Namespace) -> None:
        defaults = {each.name: each.default for each in module_variables(self.name)}
        columns = self.cloud.listed
        values = []
        for cluster in known_clusters(_state_path(cli, args), self.name):
            given = cluster.given()
            shown = {variable: given.get(variable, defaults.get(variable)) for variable in columns.values()}
            values.append({"cluster_id": cluster.cluster_id, **shown})
        cli.render.table(("Cluster ID", *columns), [tuple(each.values()) for each in values], values)

    def status(self, cli: Invocation, args: argparse.Namespace) -> None:
        cluster = self._cluster(cli, args)
        given = cluster.given()
        if not given:
            raise InvalidInput(f"--cluster-id {cluster.cluster_id}: there is no such cluster in {cluster.path}")
        account = self.cloud.account(given)
        account.check()
        outputs = self._prepared(cli, args, cluster, _looked_at(cluster)).outputs()
        if not outputs:
            raise DeployFailed(f"cluster {cluster.cluster_id} is not made yet; run `det deploy {self.name} up` again")
        text = account.bucket(outputs["bucket"]).found("status.json")
        told: dict[str, Any] = (
            json.loads(text) if text else {"ready": False, "stage": "boot", "error": "", "stages": []}
        )
        agents = account.machines(cluster.cluster_id, besides=outputs["master_instance_id"])
        shown = {
            "master": outputs["master_url"],
            "state": "ready" if told["ready"] else told["error"] or f"at work: {told['stage']}",
            "machine": outputs["master_instance_id"],
            "agents": len(agents),
            "bucket": outputs["bucket"],
            "region": outputs["region"],
        }
        cli.render.table(("What", "Is"), list(shown.items()), {**shown, "stages": told["stages"]})

    def dump_master_config_template(self, cli: Invocation, args: argparse.Namespace) -> None:
        """Prints the configuration of the cluster's master."""
        cluster = self._cluster(cli, args)
        outputs = self._prepared(cli, args, cluster, _looked_at(cluster)).outputs()
        if not outputs:
            raise InvalidInput(f"--cluster-id {cluster.cluster_id}: it is not made yet, and so has no configuration")
        desired = {"facts": outputs["facts"], "addresses": []}
        cli.render.raw(yaml_text(checked_master_config(desired, directory="/var/lib/resolute-deploy")))

    # ---------------------------------------------------------------------------------------------------- helpers and flags

    def explaining(self, verb: Run) -> Run:
        """`verb`, with a sentence in place of a traceback if the cloud refuses a call."""

        def run(cli: Invocation, args: argparse.Namespace) -> None:
            try:
                verb(cli, args)
            except Exception as error:
                words = self.cloud.explained(error)
                if words is None:
                    raise
                raise DeployFailed(words) from error

        return run

    def _cluster(self, cli: Invocation, args: argparse.Namespace) -> ClusterDirectory:
        if not args.cluster_id:
            raise InvalidInput("--cluster-id: name the cluster")
        return ClusterDirectory.of(_state_path(cli, args), self.name, args.cluster_id)

    def _prepared(
        self, cli: Invocation, args: argparse.Namespace, cluster: ClusterDirectory, values: Mapping[str, Any]
    ) -> Terraform:
        backend, bucket = None, cluster.state_bucket(args.state_bucket)
        if bucket:
            account = self.cloud.account(values)
            command = account.making_bucket(bucket)
            if command is not None:
                raise InvalidInput(f"--state-bucket {bucket}: there is no such bucket; `{command}` makes it")
            backend = self.cloud.backend(bucket, {**values, "region": account.region}, cluster.cluster_id)
        return prepared(self.cloud, cluster, values, cli.environ, backend)

    def kept_at(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            *self.cloud.flags("--state-path"),
            metavar="DIRECTORY",
            help="where clusters are kept (default: ~/.local/share/resolute/deploy)",
        )

    def state(self, parser: argparse.ArgumentParser) -> None:
        self.kept_at(parser)
        parser.add_argument(
            *self.cloud.flags("--state-bucket"),
            metavar="NAME",
            help="bucket that keeps Terraform's state, for people who share a cluster",
        )

    def cluster_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--cluster-id", help="name of the cluster")
        self.state(parser)

    def up_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.state(parser)
        parser.add_argument("--dry-run", action="store_true", help="show what would be made and do nothing")
        parser.add_argument(
            "--no-preflight-checks", action="store_true", help="do not check quota, names and images first"
        )
        parser.add_argument("--no-wait-for-master", action="store_true", help="return when Terraform has ended")
        add_flags(parser, module_variables(self.name), hidden=self.cloud.hidden)

    def down_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.cluster_arguments(parser)
        parser.add_argument("--delete-checkpoints", action="store_true", help="empty the bucket and remove it as well")
        parser.add_argument("--yes", "--no-prompt", action="store_true", help="do not ask")


# ------------------------------------------------------------------------------------------------------------------- helpers


def _state_path(cli: Invocation, args: argparse.Namespace) -> Path:
    return Path(args.state_path) if args.state_path else default_state_path(cli.environ)


def _looked_at(cluster: ClusterDirectory) -> dict[str, Any]:
    """Variables for a verb that does not change the cluster."""
    given = cluster.given()
    return given if "wheel" in given else {**given, "wheel": cluster.any_wheel()}


def _look_before(
    cli: Invocation,
    args: argparse.Namespace,
    account: Account,
    values: Mapping[str, Any],
    cost: HourlyCost,
    *,
    new: bool,
) -> None:
    cli.render.note(
        f"In {account.region}, an hour costs {_dollars(cost.idle)} with nothing to do "
        f"and {_dollars(cost.full)} with every pool full, "
        "beside database, disks and traffic; prices on demand."
    )
    if args.no_preflight_checks:
        account.check()
        return
    found = account.preflight(values, new=new)
    for each in found:
        if not each.fatal:
            cli.render.warning(each.text)
    fatal = [each.text for each in found if each.fatal]
    if fatal:
        raise InvalidInput("\n".join(fatal))


def _dollars(price: float | None) -> str:
    return "an unknown price" if price is None else f"${price_text(price, 2)}"


def _changes(plan: Mapping[str, Any]) -> Counter[str]:
    """The actions of a plan with their counts; a replacement counts as a removal and a creation."""
    words = {"create": "make", "update": "change", "delete": "remove"}
    return Counter(
        words[action]
        for change in plan.get("resource_changes", ())
        for action in change["change"]["actions"]
        if action in words
    )


def _show_plan(cli: Invocation, changes: Counter[str]) -> None:
    if not changes:
        cli.render.done("Nothing would change.", changes={})
        return
    told = ", ".join(f"{verb} {number}" for verb, number in sorted(changes.items()))
    cli.render.done(f"This would {told} resources. Nothing was done.", changes=dict(changes))


class _Steps:
    """Prints the progress of Terraform: one line for each finished resource, and the usual duration of a slow one."""

    def __init__(self, cli: Invocation, total: int, slow: Mapping[str, str]) -> None:
        self._cli = cli
        self._total = total
        self._slow = slow
        self._done = 0

    def told(self, step: Step) -> None:
        if step.action == "read":
            return
        kind = step.resource.split(".")[-2] if "." in step.resource else step.resource
        if step.elapsed_s is None:
            if step.action == "create" and kind in self._slow:
                self._cli.render.note(f"making {step.resource}: usually {self._slow[kind]}")
            return
        self._done += 1
        verb = {"create": "made", "update": "changed", "delete": "removed"}.get(step.action, step.action)
        took = f" in {step.elapsed_s:.0f} s" if step.elapsed_s >= 5 else ""
        self._cli.render.note(f"[{self._done}/{max(self._total, self._done)}] {verb} {step.resource}{took}")


def _say_what_next(cli: Invocation, cluster: ClusterDirectory, made: Deployed, cost: HourlyCost) -> None:
    if cli.render.format == "json":
        cli.render.done(
            "",
            cluster_id=cluster.cluster_id,
            master_url=made.master_url,
            certificate=str(made.authority),
            password=made.password,
            stages=list(made.stages),
        )
        return
    cli.render.success(f"Cluster {cluster.cluster_id} serves at {made.master_url}")
    cli.render.paragraph(
        f"  export DET_MASTER={made.master_url}\n"
        f"  export DET_MASTER_CERT_FILE={made.authority}\n"
        f"  det user login admin              # password: {made.password}\n"
        "  det user change-password\n"
        "  det experiment create examples/core_api/const.yaml examples/core_api -f\n\n"
        f"With nothing to do it costs {_dollars(cost.idle)} an hour beside database, disks and traffic. "
        f"`det deploy {cluster.cloud} down --cluster-id {cluster.cluster_id}` takes it away."
    )


def _question(cluster: ClusterDirectory, delete_checkpoints: bool) -> str:
    what = (
        "its database and ALL ITS CHECKPOINTS"
        if delete_checkpoints
        else "its database; a bucket with checkpoints is kept"
    )
    return f"This ends cluster {cluster.cluster_id} with all running work and removes {what}. Continue?"


def group(name: str, title: str) -> Group:
    """The noun below `det deploy`."""
    verbs = Deploy(name)
    return Group(
        name=name,
        help=f"run a cluster on {title}",
        commands=(
            Command(
                name="up",
                help="create a cluster, or change one",
                run=verbs.explaining(verbs.up),
                arguments=verbs.up_arguments,
            ),
            Command(
                name="down",
                help="remove a cluster",
                run=verbs.explaining(verbs.down),
                arguments=verbs.down_arguments,
            ),
            Command(
                name="list",
                aliases=("ls",),
                help="list the clusters that were created from this machine",
                run=verbs.show_list,
                arguments=verbs.kept_at,
                formats=("json", "csv"),
            ),
            Command(
                name="status",
                help="show the state of a cluster",
                run=verbs.explaining(verbs.status),
                arguments=verbs.cluster_arguments,
                formats=("json", "csv"),
            ),
            Command(
                name="dump-master-config-template",
                help="print the configuration of a cluster's master",
                run=verbs.explaining(verbs.dump_master_config_template),
                arguments=verbs.cluster_arguments,
            ),
        ),
    )


GROUPS = tuple(group(name, title) for name, title in clouds().items())
