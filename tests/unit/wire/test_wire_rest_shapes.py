"""Every message and enum of `resolute.wire.rest` against the contract."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Union

import pytest

import resolute.wire.rest
from resolute.wire.codec import wire_names
from resolute.wire.rest import enums
from support.rest_schema import contract

CONTRACT_NAMES = {
    "Trial": "trialv1Trial",
    "PatchCheckpointStorage": "PatchExperimentPatchCheckpointStorage",
    "PatchResources": "PatchExperimentPatchResources",
    "OptionalResources": "PatchCheckpointOptionalResources",
    "CheckpointPatch": "v1PatchCheckpoint",
    "FieldMask": "protobufFieldMask",
    "WireExperimentState": "experimentv1State",
    "WireTrialState": "trialv1State",
    "WireCheckpointState": "checkpointv1State",
    "WireContainerState": "containerv1State",
    "WireTaskState": "taskv1State",
    "WireTaskType": "v1TaskType",
    "JobState": "jobv1State",
    "JobType": "jobv1Type",
    "DeviceType": "devicev1Type",
    "EarlyExitReason": "v1TrialEarlyExitExitedReason",
    "Product": "GetMasterResponseProduct",
    "CheckpointSortBy": "checkpointv1SortBy",
    "AgentSortBy": "v1GetAgentsRequestSortBy",
    "TrialSortBy": "v1GetExperimentTrialsRequestSortBy",
    "ExperimentSortBy": "v1GetExperimentsRequestSortBy",
    "UserSortBy": "v1GetUsersRequestSortBy",
    "TemplateSortBy": "v1GetTemplatesRequestSortBy",
    "WorkspaceSortBy": "v1GetWorkspacesRequestSortBy",
    "ProjectSortBy": "v1GetWorkspaceProjectsRequestSortBy",
    "WorkloadFilter": "GetTrialWorkloadsRequestFilterOption",
}
"""Names here that are not `v1<Name>` or `<Name>` there."""

PLAIN = {"Info", "Empty"}
"""Answers that the contract lists without a message name."""

ADDED_FIELDS = {
    "AllocationPreemptionSignalResponse": {"reason", "notice"},
    "GetMasterResponse": {"resoluteVersion"},
    "Experiment": {"warning"},
    "Agent": {"resoluteVersion"},
    "Job": {"reason"},
    "LogEntry": {"logger", "fields"},
    "Trial": {"failure"},
    "PreviewHPSearchRequest": {"forecast", "secondsPerUnit"},
    "SearchSummary": {"forecast"},
    "Checkpoint": {"removal"},
}

ADDED_PARAMETERS = {"MasterLogs": {"timestampAfter"}, "GetJobs": {"reasons"}, "GetJobsV2": {"reasons"}}

QUERIES = {
    "GetExperimentsQuery": "GetExperiments",
    "GetExperimentTrialsQuery": "GetExperimentTrials",
    "GetTrialWorkloadsQuery": "GetTrialWorkloads",
    "GetMetricsQuery": "GetMetrics",
    "LogsQuery": "TaskLogs",
    "GetCheckpointsQuery": "GetExperimentCheckpoints",
    "PreemptionSignalQuery": "AllocationPreemptionSignal",
    "GetAgentsQuery": "GetAgents",
    "GetJobsQuery": "GetJobsV2",
    "GetResourcePoolsQuery": "GetResourcePools",
    "GetWorkspacesQuery": "GetWorkspaces",
    "GetWorkspaceProjectsQuery": "GetWorkspaceProjects",
    "ListWorkspacesBoundToRPQuery": "ListWorkspacesBoundToRP",
    "ListRPsBoundToWorkspaceQuery": "ListRPsBoundToWorkspace",
    "GetUsersQuery": "GetUsers",
    "MasterLogsQuery": "MasterLogs",
    "GetTemplatesQuery": "GetTemplates",
    "GetTrialMetricsByCheckpointQuery": "GetTrialMetricsByCheckpoint",
    "CompareTrialsQuery": "CompareTrials",
    "ExpMetricNamesQuery": "ExpMetricNames",
    "MetricBatchesQuery": "MetricBatches",
    "TrialsSnapshotQuery": "TrialsSnapshot",
    "TrialsSampleQuery": "TrialsSample",
    "GetProjectColumnsQuery": "GetProjectColumns",
    "GetExperimentLabelsQuery": "GetExperimentLabels",
    "LogFieldsQuery": "TaskLogsFields",
}

NOT_SERVED = {"GetUsers": {"roleIdAssignedDirectlyToUser"}}
"""Query parameters of features that this master does not have."""


def contract_name(name: str) -> str:
    named = CONTRACT_NAMES.get(name)
    if named is not None:
        return named
    known = contract()
    return f"v1{name}" if f"v1{name}" in known.types or f"v1{name}" in known.enums else name


def module_classes() -> list[type]:
    found = []
    for module_info in pkgutil.iter_modules(resolute.wire.rest.__path__):
        if module_info.name in ("advice", "costs", "enums", "extensions", "offers", "readiness", "searching", "why"):
            continue
        module = importlib.import_module(f"resolute.wire.rest.{module_info.name}")
        for item in vars(module).values():
            if isinstance(item, type) and item.__module__ == module.__name__:
                found.append(item)
    return found


MESSAGES = [
    cls for cls in module_classes() if not cls.__name__.endswith(("Query", "Filter")) and cls.__name__ not in PLAIN
]
ENUMS = [cls for cls in vars(enums).values() if isinstance(cls, type) and issubclass(cls, Enum) and list(cls)]


def described(hint: Any, field: str = "") -> str:
    """The contract's word for a type hint."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return "string" if "int64" in hint.__metadata__ and field != "id" else described(hint.__origin__)
    if origin in (Union, types.UnionType):
        return described(next(part for part in typing.get_args(hint) if part is not type(None)), field)
    if origin is tuple:
        return f"list[{described(typing.get_args(hint)[0])}]"
    if origin is Mapping:
        value = typing.get_args(hint)[1]
        return "object" if value is Any else f"map[string, {described(value)}]"
    plain = {str: "string", bytes: "string", datetime: "string", int: "int", float: "float", bool: "boolean"}.get(hint)
    return plain or contract_name(hint.__name__)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_message_has_the_fields_of_the_contract(cls: type) -> None:
    fields = contract().types[contract_name(cls.__name__)]
    ours = set(wire_names(cls).values())
    assert ours - ADDED_FIELDS.get(cls.__name__, set()) == set(fields)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_message_fields_have_the_types_of_the_contract(cls: type) -> None:
    fields = contract().types[contract_name(cls.__name__)]
    hints = typing.get_type_hints(cls, include_extras=True)
    ours = {key: described(hints[name], key) for name, key in wire_names(cls).items() if key in fields}
    assert ours == {key: field["type"] for key, field in fields.items()}


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_required_keys_of_answers_are_never_null(cls: type) -> None:
    """The released client reads them without asking whether they are there."""
    fields = contract().types[contract_name(cls.__name__)]
    hints = typing.get_type_hints(cls)
    for name, key in wire_names(cls).items():
        if fields.get(key, {}).get("required"):
            assert type(None) not in typing.get_args(hints[name]), f"{cls.__name__}.{name} may be None"


@pytest.mark.parametrize("cls", ENUMS, ids=lambda cls: cls.__name__)
def test_enum_has_the_values_of_the_contract(cls: type[Enum]) -> None:
    assert [member.value for member in cls] == list(contract().enums[contract_name(cls.__name__)])
    for member in cls:
        assert member.value.upper().endswith(member.name)


@pytest.mark.parametrize(("name", "operation"), sorted(QUERIES.items()))
def test_query_has_the_parameters_of_the_contract(name: str, operation: str) -> None:
    cls = next(cls for cls in module_classes() if cls.__name__ == name)
    (endpoint,) = [endpoint for endpoint in contract().endpoints if endpoint.operation == operation]
    expected = {re.sub(r"\..*", "", key) for key in endpoint.query} - NOT_SERVED.get(operation, set())
    expected |= ADDED_PARAMETERS.get(operation, set())
    assert set(wire_names(cls).values()) == expected


def test_every_query_class_is_checked() -> None:
    assert {cls.__name__ for cls in module_classes() if cls.__name__.endswith("Query")} == set(QUERIES)


def test_every_tier_a_answer_of_the_built_calls_has_a_shape() -> None:
    """New calls of the first tier must not slip in without a message."""
    shapes = {contract_name(cls.__name__) for cls in MESSAGES}
    wanted = set()
    for endpoint in contract().endpoints:
        if endpoint.tier == "A" and endpoint.response_type and endpoint.path.startswith("/api/v1"):
            wanted.add(re.sub(r"^stream\[(.*)\]$", r"\1", endpoint.response_type))
    assert wanted - shapes == set()


def test_messages_are_frozen_and_named_once() -> None:
    names = [cls.__name__ for cls in module_classes()]
    assert len(names) == len(set(names))
    for cls in module_classes():
        assert dataclasses.is_dataclass(cls)
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
