"""Each variable of the module is one flag of `det deploy aws up`."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from resolute_deploy.cloud import deployment
from resolute_deploy.cluster_directory import in_flags, module_variables
from resolute_deploy.command import GROUPS
from resolute_deploy.variables import Variable, add_flags, given_values, missing

VARIABLES = module_variables("aws")
(AWS,) = (each for each in GROUPS if each.name == "aws")
UP = next(each for each in AWS.commands if each.name == "up")
HIDDEN = deployment("aws").hidden


def up_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    assert UP.arguments is not None  # type: ignore[union-attr]
    UP.arguments(parser)  # type: ignore[union-attr]
    return parser


def parsed(*arguments: str) -> dict[str, Any]:
    return given_values(up_parser().parse_args(arguments), VARIABLES)


def test_every_variable_is_a_flag_once() -> None:
    flags = [option for action in up_parser()._actions for option in action.option_strings]
    for variable in VARIABLES:
        assert flags.count(variable.flag) == (0 if variable.name in HIDDEN else 1), variable.flag


def test_the_flags_of_the_original_are_there() -> None:
    names = {variable.flag for variable in VARIABLES}
    assert {
        *("--cluster-id", "--keypair", "--deployment-type", "--region", "--profile", "--add-tag", "--inbound-cidr"),
        *("--master-instance-type", "--compute-agent-instance-type", "--aux-agent-instance-type", "--agent-subnet-id"),
        *("--min-dynamic-agents", "--max-dynamic-agents", "--max-aux-containers-per-agent", "--max-idle-agent-period"),
        *("--max-agent-starting-period", "--spot", "--spot-max-price", "--scheduler-type", "--preemption-enabled"),
        *("--db-instance-type", "--db-size", "--db-snapshot", "--cpu-env-image", "--gpu-env-image", "--efs-id"),
    } <= names


def test_what_is_not_given_is_not_there() -> None:
    """So that an update changes what was given and nothing else."""
    assert parsed("--cluster-id", "vision") == {"cluster_id": "vision"}


def test_values_have_the_type_of_their_variable() -> None:
    given = parsed(
        *(
            "--inbound-cidr",
            "10.0.0.0/8",
            "192.168.0.0/16",
            "--max-dynamic-agents",
            "7",
            "--no-spot",
            "--spot-max-price",
            "0.5",
        ),
        *("--add-tag", "team=vision", "cost=a=b"),
    )
    assert given == {
        "inbound_cidr": ["10.0.0.0/8", "192.168.0.0/16"],
        "max_dynamic_agents": 7,
        "spot": False,
        "spot_max_price": 0.5,
        "add_tag": {"team": "vision", "cost": "a=b"},
    }


@pytest.mark.parametrize(
    ("arguments", "word"), [(("--db-size", "big"), "must be a number"), (("--add-tag", "team"), "must be KEY=VALUE")]
)
def test_a_value_of_another_type_is_refused(arguments: tuple[str, ...], word: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=word):
        up_parser().parse_args(arguments)


def test_help_tells_the_default() -> None:
    text = " ".join(up_parser().format_help().split())
    assert "(default: g5.xlarge g6.xlarge)" in text and "(default: 10m)" in text and "(default: false)" in text


def test_what_a_new_cluster_needs_is_named() -> None:
    assert [each.flag for each in missing({"cluster_id": "vision"}, VARIABLES)] == ["--keypair", "--wheel"]


def test_words_of_the_module_become_flags() -> None:
    assert in_flags("efs_id needs the deployment_type efs.", VARIABLES) == "--efs-id needs the --deployment-type efs."


def test_percent_signs_in_descriptions_are_harmless() -> None:
    parser = argparse.ArgumentParser()
    variable = Variable(name="share", type="number", description="Use 50% of it.", default=1)
    add_flags(parser, (variable,), hidden=frozenset())
    assert "50% of it" in parser.format_help()
