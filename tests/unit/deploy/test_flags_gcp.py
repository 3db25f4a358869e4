"""Each variable of the module is one flag of `det deploy gcp up`, and the flags of the original have their names."""

from __future__ import annotations

import argparse

from resolute_cli.command import Command
from resolute_deploy.cloud import deployment
from resolute_deploy.cluster_directory import in_flags, module_variables
from resolute_deploy.command import GROUPS
from resolute_deploy.variables import given_values, missing

VARIABLES = module_variables("gcp")
(GCP,) = (each for each in GROUPS if each.name == "gcp")


def parser_of(verb: str) -> argparse.ArgumentParser:
    command = next(each for each in GCP.commands if each.name == verb)
    assert isinstance(command, Command) and command.arguments is not None
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.arguments(parser)
    return parser


def test_every_variable_is_a_flag_once() -> None:
    flags = [option for action in parser_of("up")._actions for option in action.option_strings]
    for variable in VARIABLES:
        assert flags.count(variable.flag) == (0 if variable.name in deployment("gcp").hidden else 1), variable.flag


def test_the_flags_of_the_original_are_there() -> None:
    flags = {option for action in parser_of("up")._actions for option in action.option_strings}
    assert {
        *("--cluster-id", "--project-id", "--dry-run", "--keypath", "--network", "--region", "--zone"),
        *("--filestore-address", "--no-filestore", "--disk-size", "--disk-type", "--preemptible"),
        *("--local-state-path", "--tf-state-gcs-bucket-name", "--operation-timeout-period", "--master-instance-type"),
        *("--compute-agent-instance-type", "--aux-agent-instance-type", "--gpu-type", "--gpu-num", "--port"),
        *("--min-dynamic-agents", "--max-dynamic-agents", "--max-aux-containers-per-agent", "--max-idle-agent-period"),
        *("--max-agent-starting-period", "--scheduler-type", "--preemption-enabled", "--cpu-env-image"),
        *("--gpu-env-image", "--add-label", "--no-preflight-checks", "--no-wait-for-master"),
    } <= flags
    assert "--local-state-path" in {each for action in parser_of("list")._actions for each in action.option_strings}


def test_values_have_the_type_of_their_variable() -> None:
    given = given_values(
        parser_of("up").parse_args(
            ["--gpu-num", "2", "--add-label", "team=vision", "--no-filestore", "--zones", "a", "b"]
        ),
        VARIABLES,
    )
    assert given == {"gpu_num": 2, "add_label": {"team": "vision"}, "filestore": False, "zones": ["a", "b"]}


def test_what_a_new_cluster_needs_is_named() -> None:
    assert [each.flag for each in missing({"cluster_id": "vision"}, VARIABLES)] == ["--project-id", "--wheel"]


def test_words_of_the_module_become_flags() -> None:
    text = "filestore_address names a file system, and filestore makes one: give one of them."
    assert in_flags(text, VARIABLES).startswith("--filestore-address names a file system")
