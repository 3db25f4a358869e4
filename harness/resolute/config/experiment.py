"""The configuration of an experiment: every key, and the way from what was submitted to what is run.

`parse_experiment` merges, validates and completes. Three keys have no default of their own and come from the
cluster when the user leaves them out: `name`, `reproducibility.experiment_seed` and `checkpoint_storage`
(`resolute.config.defaults.experiment_defaults`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    FreeMap,
    Integer,
    NonEmptyText,
    PositiveInteger,
    SecretMark,
    Text,
)
from resolute.config.checkpoint_storage import CheckpointStorage, TensorboardStorage
from resolute.config.deadlines import deadline_problems
from resolute.config.durations import WholeSeconds
from resolute.config.environment import BindMount, Environment
from resolute.config.errors import InvalidConfig, Problem, problems_of, show_value
from resolute.config.hyperparameters import Hyperparameter, condition_problems, without_count
from resolute.config.lengths import Length
from resolute.config.log_policies import BUILT_IN_LOG_POLICIES, LogPolicies
from resolute.config.masking import refuse_masks
from resolute.config.merging import merge
from resolute.config.not_acted_on import not_acted_on
from resolute.config.resources import Resources
from resolute.config.searcher import AdaptiveAshaSearcher, AsyncHalvingSearcher, GridSearcher, Searcher
from resolute.config.training import (
    ExperimentSecurity,
    Integrations,
    Optimizations,
    Pbs,
    Profiling,
    Reproducibility,
    RetentionPolicy,
    Slurm,
)
from resolute.config.yaml_text import as_json
from resolute.errors import InvalidInput


def _label_set(value: Any) -> Any:
    """Labels are a set; an old form is a map from label to whether it is set."""
    if isinstance(value, Mapping):
        value = [label for label, is_set in value.items() if is_set]
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(one, str) for one in value):
        return sorted(set(value))
    return value


def _entrypoint_form(value: Any) -> str:
    return "<list>" if isinstance(value, (list, tuple)) else "<string>"


Labels = Annotated[tuple[NonEmptyText, ...], BeforeValidator(_label_set)]
Entrypoint = Annotated[
    Annotated[NonEmptyText, Tag("<string>")] | Annotated[tuple[Text, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(_entrypoint_form),
]


class ExperimentConfig(ConfigModel):
    """A complete configuration. Made by `parse_experiment`; the attributes are the keys."""

    dropped: ClassVar[frozenset[str]] = frozenset({"data_layer"})
    omitted_when_null: ClassVar[frozenset[str]] = frozenset(
        {"retention_policy", "security", "tensorboard_storage", "slurm", "pbs"}
    )
    hints: ClassVar[Mapping[str, str]] = {
        "internal": "only null may be given for it; remove it",
        "batches_per_step": "it belongs to old releases; use 'scheduling_unit'",
    }

    name: NonEmptyText
    """Name shown in lists; generated if omitted."""
    description: Text | None = None
    """A description for other users."""
    labels: Labels = ()
    """Words to find it by."""
    data: Annotated[FreeMap, SecretMark.DATA] = Field(default_factory=dict)
    """Free-form, for the training code; what is under `data.secrets` is masked on display."""
    workspace: Text = ""
    """Name of the workspace; only together with `project`."""
    project: Text = ""
    """Name of the project; only together with `workspace`."""
    entrypoint: Entrypoint | None = None
    """What a trial runs: a shell command, a list of arguments, or `module:Class`."""
    hyperparameters: dict[str, Hyperparameter] = Field(default_factory=dict)
    """The search space."""
    searcher: Searcher
    """How trials are chosen."""
    resources: Resources = Resources()
    """Slots and their pool."""
    environment: Environment = Environment()
    """Image, variables, ports."""
    bind_mounts: tuple[BindMount, ...] = ()
    """Directories of the machine."""
    checkpoint_storage: CheckpointStorage
    """Where checkpoints are kept; usually the cluster's."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """Which checkpoints the training library makes after a validation."""
    max_restarts: Count = 5
    """How often a failed trial is started again."""
    preemption_timeout: WholeSeconds | None = None
    """Seconds that a preempted trial has to end; the cluster's default is 3600."""
    log_policies: LogPolicies = ()
    """Actions for matching lines of the log; two built-in policies are added."""
    retention_policy: RetentionPolicy | None = None
    """How long logs are kept."""
    profiling: Profiling = Profiling()
    """System metrics of trials."""
    reproducibility: Reproducibility
    """Seeds."""
    integrations: Integrations | None = None
    """Other systems that are notified of this experiment."""
    perform_initial_validation: Flag = False
    """Validate before the first batch."""
    min_validation_period: Length = Length(batches=0)
    """Maximum length between validations; zero means only at the end."""
    min_checkpoint_period: Length = Length(batches=0)
    """Maximum length between checkpoints; zero means only at the end."""
    scheduling_unit: PositiveInteger = 100
    """Batches between reports of training metrics."""
    records_per_epoch: Integer = 0
    """Records of an epoch, if the training code does not define it."""
    optimizations: Optimizations = Optimizations()
    """Old switches of distributed training."""
    slurm: Slurm | None = None
    """For HPC schedulers only."""
    pbs: Pbs | None = None
    """For HPC schedulers only."""
    debug: Flag = False
    """Verbose logs of the platform's own code in tasks."""
    security: ExperimentSecurity | None = None
    """Has no effect; accepted for old configurations."""
    tensorboard_storage: TensorboardStorage | None = None
    """Old place for TensorBoard files."""

    def to_json(self) -> dict[str, Any]:
        """The complete configuration as JSON values; `parse_experiment` accepts it again and gives an equal value."""
        return self.model_dump(mode="json")


def parse_experiment(
    raw: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None, managed: bool = True
) -> ExperimentConfig:
    """Read what a user submitted, with `defaults` merged under it.

    A managed experiment needs an entrypoint; one that reports from elsewhere does not. Raises InvalidConfig with
    every problem: unknown keys, wrong types and ranges, missing keys, broken rules, keys not acted on yet.
    """
    subject = "the experiment configuration"
    given = as_json(raw, what=subject)
    if not isinstance(given, dict):
        raise InvalidInput(f"{subject} must be a mapping of keys to values")
    refuse_masks(given, subject)
    version = given.pop("version", None)
    if version not in (None, 0):
        message = f"must be left out or 0 (value {show_value(version)}); there is one version only"
        raise InvalidConfig(subject, [Problem(path=("version",), message=message)])
    below = merge(as_json(defaults or {}, what="the defaults"), {"log_policies": as_json(BUILT_IN_LOG_POLICIES)})
    merged = merge(given, below)
    try:
        config = ExperimentConfig.model_validate(merged)
    except ValidationError as error:
        raise InvalidConfig(subject, map(_with_advice, problems_of(error))) from None
    problems = [*_cross_checks(config, managed=managed), *not_acted_on(config.to_json())]
    if problems:
        raise InvalidConfig(subject, problems)
    return config


def _with_advice(problem: Problem) -> Problem:
    """Keys that the user must set only if the cluster does not."""
    if problem.path != ("checkpoint_storage",) or problem.message != "is a required property":
        return problem
    advice = "give it here, or set checkpoint_storage in the master's configuration, for all experiments"
    return Problem(path=problem.path, message=f"{problem.message}, as the cluster has none; {advice}")


_EVERY_KIND = frozenset(
    {
        ("description",),
        ("checkpoint_storage",),
        ("data",),
        ("debug",),
        ("bind_mounts",),
        ("environment",),
        *(
            ("resources", key)
            for key in ("priority", "resource_pool", "shm_size", "max_slots", "devices", "native_parallel")
        ),
    }
)
"""Keys with the same meaning in the configurations of an experiment and of every other kind of task."""


def parse_template(raw: Mapping[str, Any], *, name: str = "", experiment: bool = False) -> dict[str, Any]:
    """Part of a configuration, as JSON values, to be merged under what a user submits: an experiment, or another kind of task,
    whose configuration has other keys.

    Anything may be missing from it. Raises InvalidConfig with every problem of what is there: with `experiment` all that an
    experiment could not have, else what no kind of task could.
    """
    subject = f"the template '{name}'" if name else "the template"
    given = as_json(raw, what=subject)
    if not isinstance(given, dict):
        raise InvalidInput(f"{subject} must be a mapping of keys to values")
    refuse_masks(given, subject)
    try:
        ExperimentConfig.model_validate(given)
    except ValidationError as error:
        problems = problems_of(error, missing=False)
        if not experiment:
            problems = tuple(each for each in problems if _of_every_kind(each))
        if problems:
            raise InvalidConfig(subject, problems) from None
    return given


def _of_every_kind(problem: Problem) -> bool:
    if problem.message.startswith("is not a known key"):  # other kinds of task have other keys, and ignore the rest
        # But a key beside credentials may be a password's name misspelt, which would be shown.
        return problem.path[:2] == ("environment", "registry_auth")
    return problem.path in ((), ("resources",)) or any(problem.path[: len(part)] == part for part in _EVERY_KIND)


def _cross_checks(config: ExperimentConfig, *, managed: bool) -> list[Problem]:
    """Rules between different parts of the configuration."""
    problems = []
    if managed and config.entrypoint is None:
        message = "is a required property; managed experiments require entrypoint"
        problems.append(Problem(path=("entrypoint",), message=message))
    if bool(config.workspace) != bool(config.project):
        missing, given = ("project", "workspace") if config.workspace else ("workspace", "project")
        problems.append(Problem(path=(missing,), message=f"is a required property when {given} is given; give both"))
    searcher = config.searcher
    written = config.to_json()["hyperparameters"]
    problems += [
        Problem(path=("hyperparameters", *path), message=message) for path, message in condition_problems(written)
    ]
    if isinstance(searcher, GridSearcher):
        message = "grid search is in use but count was not provided; add count"
        problems += [Problem(path=path, message=message) for path in without_count(written, ("hyperparameters",))]
    if isinstance(searcher, (AsyncHalvingSearcher, AdaptiveAshaSearcher)):
        problems += _halving_problems(searcher)
    return [*problems, *deadline_problems(config, managed=managed)]


def _halving_problems(searcher: AsyncHalvingSearcher | AdaptiveAshaSearcher) -> list[Problem]:
    """The time metric, or lengths that the training code requests, determine how far trials train."""
    missing = [key for key in ("max_time", "time_metric") if getattr(searcher, key) is None]
    if len(missing) == 2 and searcher.max_length:
        return []
    message = f"is a required property of the searcher {searcher.name}"
    advice = "; where the training code asks for lengths, give max_length instead of both" if len(missing) == 2 else ""
    return [Problem(path=("searcher", key), message=message + advice) for key in missing]


__all__ = ["ExperimentConfig", "parse_experiment", "parse_template"]
