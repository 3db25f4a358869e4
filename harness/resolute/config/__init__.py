"""User-written configuration: of experiments, the master and the agent.

Contains every key with its type, default and rules, the merging of layers, and the keys that are not acted on yet. Must not
depend on how anything is run, stored or sent: it reads the given file and nothing else. This package
alone uses pydantic; code inside a training container never imports it.

    config = parse_experiment(raw, defaults=experiment_defaults(master, raw, ids=ids, clock=clock))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resolute.config.agent import DEFAULT_AGENT_CONFIG_PATH, AgentConfig, load_agent_config, parse_agent_config
    from resolute.config.checkpoint_storage import DirectoryStorage, SharedFsStorage
    from resolute.config.defaults import experiment_defaults, generated_name
    from resolute.config.durations import format_duration, parse_duration
    from resolute.config.errors import InvalidConfig, Problem
    from resolute.config.experiment import ExperimentConfig, parse_experiment, parse_template
    from resolute.config.lengths import Length
    from resolute.config.masking import refuse_masks
    from resolute.config.master import (
        DEFAULT_MASTER_CONFIG_PATH,
        MasterConfig,
        PostgresDatabase,
        SqliteDatabase,
        load_master_config,
        parse_master_config,
    )
    from resolute.config.merging import merge
    from resolute.config.not_acted_on import runtime_warnings
    from resolute.config.pools import ResourceManager, ResourcePool, Scheduler
    from resolute.config.secret_names import SecretNames
    from resolute.config.shown_experiment import mask_experiment, mask_experiment_text, with_stored_secrets
    from resolute.config.yaml_text import load_yaml

__all__ = [
    "DEFAULT_AGENT_CONFIG_PATH",
    "DEFAULT_MASTER_CONFIG_PATH",
    "AgentConfig",
    "DirectoryStorage",
    "ExperimentConfig",
    "InvalidConfig",
    "Length",
    "MasterConfig",
    "PostgresDatabase",
    "Problem",
    "ResourceManager",
    "ResourcePool",
    "Scheduler",
    "SecretNames",
    "SharedFsStorage",
    "SqliteDatabase",
    "experiment_defaults",
    "format_duration",
    "generated_name",
    "load_agent_config",
    "load_master_config",
    "load_yaml",
    "mask_experiment",
    "mask_experiment_text",
    "merge",
    "parse_agent_config",
    "parse_duration",
    "parse_experiment",
    "parse_master_config",
    "parse_template",
    "refuse_masks",
    "runtime_warnings",
    "with_stored_secrets",
]

_MODULES = {
    "agent": (
        "DEFAULT_AGENT_CONFIG_PATH",
        "AgentConfig",
        "load_agent_config",
        "parse_agent_config",
    ),
    "checkpoint_storage": (
        "DirectoryStorage",
        "SharedFsStorage",
    ),
    "defaults": (
        "experiment_defaults",
        "generated_name",
    ),
    "durations": (
        "format_duration",
        "parse_duration",
    ),
    "errors": (
        "InvalidConfig",
        "Problem",
    ),
    "experiment": (
        "ExperimentConfig",
        "parse_experiment",
        "parse_template",
    ),
    "lengths": ("Length",),
    "masking": ("refuse_masks",),
    "master": (
        "DEFAULT_MASTER_CONFIG_PATH",
        "MasterConfig",
        "PostgresDatabase",
        "SqliteDatabase",
        "load_master_config",
        "parse_master_config",
    ),
    "merging": ("merge",),
    "not_acted_on": ("runtime_warnings",),
    "pools": (
        "ResourceManager",
        "ResourcePool",
        "Scheduler",
    ),
    "secret_names": ("SecretNames",),
    "shown_experiment": (
        "mask_experiment",
        "mask_experiment_text",
        "with_stored_secrets",
    ),
    "yaml_text": ("load_yaml",),
}
"""Where each name is. A module is imported when it is first used: a reader of one YAML file needs no models of
masters, agents and clouds, whose making takes longer than all the rest of a command."""

_WHERE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
