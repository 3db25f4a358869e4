"""`det deploy aws`: what the verbs take, do and say."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.render import confirmed, price_text, yaml_text
from resolute_deploy.aws.account import Account
from resolute_deploy.aws.bucket import ClusterBucket
from resolute_deploy.aws.lifecycle import (
    Deployed,
    DeployFailed,
    complete,
    deployed,
    prepared,
    take_down,
    wait_until_ready,
)
from resolute_deploy.aws.orphans import remove_orphans
from resolute_deploy.aws.preflight import hourly_cost, preflight
from resolute_deploy.cluster_directory import (
    ClusterDirectory,
    StateBucket,
    default_state_path,
    known_clusters,
    module_variables,
)
from resolute_deploy.master_config import checked_master_config
from resolute_deploy.own_wheel import own_wheel
from resolute_deploy.terraform import Step
from resolute_deploy.variables import add_flags, given_values, missing

PLAN = "plan.out"
"""File of what was planned, in the working copy of the module."""

HIDDEN = frozenset({"endpoint_url"})
SLOW = {
    "aws_db_instance": "5 to 10 minutes",
    "aws_nat_gateway": "2 minutes",
    "aws_s3_bucket_lifecycle_configuration": "1 minute",
}
"""How long resources take that take long."""


def up(cli: Invocation, args: argparse.Namespace) -> None:
    cluster, state_bucket = _cluster(cli, args)
    variables = module_variables("aws")
    before = cluster.given()
    given = {**before, **given_values(args, variables)}
    own = "wheel" not in given
    if own:
        given["wheel"] = str(cluster.wheels)  # made when everything else is right: it takes seconds
    lacking = missing(given, variables)
    if lacking:
        raise InvalidInput(
            f"a new cluster needs {', '.join(each.flag for each in lacking)}; `det deploy aws up --help` describes them"
        )
    cluster.check(given, cli.environ)
    account = Account.of(given)
    values = complete(given, account)
    _look_before(cli, args, account, values, new=not before and state_bucket is None)
    if own:
        given["wheel"] = str(own_wheel(cluster.wheels))
    given["region"] = account.region
    if not args.dry_run:
        cluster.keep({name: value for name, value in given.items() if not (own and name == "wheel")})
    terraform = prepared(cluster, given, cli.environ, state_bucket)
    if not args.dry_run:
        remove_orphans(account, terraform, cluster.cluster_id, cli.render.note)
    changes = _changes(terraform.plan(PLAN))
    if args.dry_run:
        _show_plan(cli, changes)
        if not before:
            cluster.forget()
        return
    steps = _Steps(cli, sum(changes.values()))
    terraform.apply(steps.told, PLAN)
    outputs = terraform.outputs()
    if args.no_wait_for_master:
        cli.render.success(f"Cluster {cluster.cluster_id} is made; its master will serve at {outputs['master_url']}")
        return
    stages = wait_until_ready(account, outputs, cli.render.note)
    _say_what_next(cli, cluster, deployed(account, cluster, outputs, stages), values, account.region)


def down(cli: Invocation, args: argparse.Namespace) -> None:
    cluster, state_bucket = _cluster(cli, args)
    given = cluster.given()
    if not given:
        raise InvalidInput(
            f"--cluster-id {cluster.cluster_id}: {cluster.path} knows no such cluster; "
            "`det deploy aws list` shows those that it knows"
        )
    if not args.yes and not confirmed(_question(cluster, args.delete_checkpoints), cli.render, cli.stdin):
        cli.render.note("Nothing was changed.")
        return
    account = Account.of(given)
    account.number()
    terraform = prepared(cluster, _looked_at(cluster), cli.environ, state_bucket)
    steps = _Steps(
        cli, len([each for each in terraform.resources() if ".data." not in each and not each.startswith("data.")])
    )
    left = take_down(
        account,
        cluster,
        terraform,
        delete_checkpoints=args.delete_checkpoints,
        told=cli.render.note,
        step=steps.told,
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


def show_list(cli: Invocation, args: argparse.Namespace) -> None:
    found = list(known_clusters(_state_path(cli, args), "aws"))
    rows = [
        (each.cluster_id, each.given().get("region"), each.given().get("deployment_type", "simple-rds"))
        for each in found
    ]
    values = [{"cluster_id": row[0], "region": row[1], "deployment_type": row[2]} for row in rows]
    cli.render.table(("Cluster ID", "Region", "Deployment Type"), rows, values)


def status(cli: Invocation, args: argparse.Namespace) -> None:
    cluster, state_bucket = _cluster(cli, args)
    given = cluster.given()
    if not given:
        raise InvalidInput(f"--cluster-id {cluster.cluster_id}: {cluster.path} knows no such cluster")
    account = Account.of(given)
    account.number()
    outputs = prepared(cluster, _looked_at(cluster), cli.environ, state_bucket).outputs()
    if not outputs:
        raise DeployFailed(f"cluster {cluster.cluster_id} is not made yet; run `det deploy aws up` again")
    text = ClusterBucket(account.client("s3"), outputs["bucket"]).found("status.json")
    told: dict[str, Any] = json.loads(text) if text else {"ready": False, "stage": "boot", "error": "", "stages": []}
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


def dump_master_config_template(cli: Invocation, args: argparse.Namespace) -> None:
    """The configuration that the master of a cluster is given."""
    cluster, state_bucket = _cluster(cli, args)
    outputs = prepared(cluster, _looked_at(cluster), cli.environ, state_bucket).outputs()
    if not outputs:
        raise InvalidInput(f"--cluster-id {cluster.cluster_id}: it is not made yet, and so has no configuration")
    desired = {"facts": outputs["facts"], "addresses": []}
    cli.render.raw(yaml_text(checked_master_config(desired, directory="/var/lib/resolute-deploy")))


# ------------------------------------------------------------------------------------------------------------------- helpers


def _state_path(cli: Invocation, args: argparse.Namespace) -> Path:
    return Path(args.state_path) if args.state_path else default_state_path(cli.environ)


def _cluster(cli: Invocation, args: argparse.Namespace) -> tuple[ClusterDirectory, StateBucket | None]:
    if not args.cluster_id:
        raise InvalidInput("--cluster-id: name the cluster")
    cluster = ClusterDirectory.of(_state_path(cli, args), "aws", args.cluster_id)
    if not args.state_bucket:
        return cluster, None
    region = getattr(args, "region", None) or cluster.given().get("region")
    return cluster, StateBucket(name=args.state_bucket, region=region or Account.of({}).region)


def _looked_at(cluster: ClusterDirectory) -> dict[str, Any]:
    """Variables of a cluster that is not to be changed."""
    given = cluster.given()
    return given if "wheel" in given else {**given, "wheel": cluster.any_wheel()}


def _look_before(
    cli: Invocation, args: argparse.Namespace, account: Account, values: Mapping[str, Any], *, new: bool
) -> None:
    cost = hourly_cost(values, account.region)
    cli.render.note(
        f"In {account.region}, an hour costs {_dollars(cost.idle)} with nothing to do "
        f"and {_dollars(cost.full)} with every pool full, "
        "beside database, disks and traffic; prices on demand."
    )
    if args.no_preflight_checks:
        account.number()
        return
    found = preflight(account, values, new=new)
    for each in found:
        if not each.fatal:
            cli.render.warning(each.text)
    fatal = [each.text for each in found if each.fatal]
    if fatal:
        raise InvalidInput("\n".join(fatal))


def _dollars(price: float | None) -> str:
    return "an unknown price" if price is None else f"${price_text(price, 2)}"


def _changes(plan: Mapping[str, Any]) -> Counter[str]:
    """Words for what a plan does, with their numbers; a replacement counts as both."""
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
    """Says what Terraform does, one line a resource that is done, and what a slow one usually takes."""

    def __init__(self, cli: Invocation, total: int) -> None:
        self._cli = cli
        self._total = total
        self._done = 0

    def told(self, step: Step) -> None:
        if step.action == "read":
            return
        kind = step.resource.split(".")[-2] if "." in step.resource else step.resource
        if step.elapsed_s is None:
            if step.action == "create" and kind in SLOW:
                self._cli.render.note(f"making {step.resource}: usually {SLOW[kind]}")
            return
        self._done += 1
        verb = {"create": "made", "update": "changed", "delete": "removed"}.get(step.action, step.action)
        took = f" in {step.elapsed_s:.0f} s" if step.elapsed_s >= 5 else ""
        self._cli.render.note(f"[{self._done}/{max(self._total, self._done)}] {verb} {step.resource}{took}")


def _say_what_next(
    cli: Invocation, cluster: ClusterDirectory, made: Deployed, values: Mapping[str, Any], region: str
) -> None:
    idle = _dollars(hourly_cost(values, region).idle)
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
        f"With nothing to do it costs {idle} an hour beside database, disks and traffic. "
        f"`det deploy aws down --cluster-id {cluster.cluster_id}` takes it away."
    )


def _question(cluster: ClusterDirectory, delete_checkpoints: bool) -> str:
    what = (
        "its database and ALL ITS CHECKPOINTS"
        if delete_checkpoints
        else "its database; a bucket with checkpoints is kept"
    )
    return f"This ends cluster {cluster.cluster_id} with all running work and removes {what}. Go on?"


# --------------------------------------------------------------------------------------------------------------------- flags


def _kept_at(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-path", metavar="DIRECTORY", help="where clusters are kept (default: ~/.local/share/resolute/deploy)"
    )


def _state(parser: argparse.ArgumentParser) -> None:
    _kept_at(parser)
    parser.add_argument(
        "--state-bucket", metavar="NAME", help="bucket that keeps Terraform's state, for people who share a cluster"
    )


def _cluster_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster-id", help="name of the cluster")
    _state(parser)


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    _state(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be made and do nothing")
    parser.add_argument(
        "--no-preflight-checks", action="store_true", help="do not look at quota, names and images first"
    )
    parser.add_argument("--no-wait-for-master", action="store_true", help="return when Terraform has ended")
    add_flags(parser, module_variables("aws"), hidden=HIDDEN)


def _down_arguments(parser: argparse.ArgumentParser) -> None:
    _cluster_arguments(parser)
    parser.add_argument("--delete-checkpoints", action="store_true", help="empty the bucket and remove it as well")
    parser.add_argument("--yes", "--no-prompt", action="store_true", help="do not ask")


AWS = Group(
    name="aws",
    help="run a cluster on Amazon Web Services",
    commands=(
        Command(name="up", help="make a cluster, or change one", run=up, arguments=_up_arguments),
        Command(name="down", help="take a cluster away", run=down, arguments=_down_arguments),
        Command(
            name="list",
            aliases=("ls",),
            help="list the clusters that were made from here",
            run=show_list,
            arguments=_kept_at,
            formats=("json", "csv"),
        ),
        Command(
            name="status",
            help="show how a cluster is",
            run=status,
            arguments=_cluster_arguments,
            formats=("json", "csv"),
        ),
        Command(
            name="dump-master-config-template",
            help="print the configuration of a cluster's master",
            run=dump_master_config_template,
            arguments=_cluster_arguments,
        ),
    ),
)
