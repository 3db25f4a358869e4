"""A Terraform provider with a published schema: Terraform validates a module with the schema, and an account of the tests creates
the resources.

TF_REATTACH_PROVIDERS connects Terraform with it, so that Terraform downloads nothing. A map on the wire is a list of entries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import msgpack

from support.terraform_protocol import CLASSES, METHODS, SERVICE

SCHEMA = Path(__file__).with_name("google_provider.json")
ADDRESS = "registry.terraform.io/hashicorp/google"
PROVIDER_BLOCK = {
    "attributes": {
        "project": ["string", "optional"],
        "region": ["string", "optional"],
        "credentials": ["string", "optional"],
        "default_labels": [["map", "string"], "optional"],
        "add_terraform_attribution_label": ["bool", "optional"],
    },
    "blocks": {},
}
UNKNOWN = msgpack.ExtType(0, b"\x00")
LIST, SINGLE = 2, 1
"""Nesting modes of blocks."""

Values = dict[str, Any]


class RefusedResource(Exception):
    """The account refuses to create a resource."""


class Project(Protocol):
    """An account in which resources are created."""

    def create(self, type_: str, values: Values) -> Values:
        """Attributes that the cloud adds to a new resource, including `id`. Raises `RefusedResource`."""
        ...

    def update(self, type_: str, before: Values, values: Values) -> None: ...

    def delete(self, type_: str, values: Values) -> None: ...

    def exists(self, type_: str, values: Values) -> bool: ...

    def adopt(self, type_: str, id_: str) -> Values:
        """The attributes of an existing resource."""
        ...

    def data(self, type_: str, values: Values) -> Values:
        """The attributes of a data source."""
        ...


def schema() -> Values:
    told: Values = json.loads(SCHEMA.read_text())
    return told


class Provider:
    def __init__(self, project: Project) -> None:
        self._project = project
        told = schema()
        self._resources: Mapping[str, Values] = told["resources"]
        self._data: Mapping[str, Values] = told["data"]

    # ---------------------------------------------------------------------------------------------------------- the methods

    def GetProviderSchema(self, asked: Any) -> Any:
        return CLASSES["Schemas"](
            provider=_schema(PROVIDER_BLOCK),
            resource_schemas=[CLASSES["NamedSchema"](key=k, value=_schema(b)) for k, b in self._resources.items()],
            data_source_schemas=[CLASSES["NamedSchema"](key=k, value=_schema(b)) for k, b in self._data.items()],
        )

    def ValidateProviderConfig(self, asked: Any) -> Any:
        return CLASSES["ProviderDiagnostics"]()

    def ConfigureProvider(self, asked: Any) -> Any:
        return CLASSES["Diagnostics"]()

    def ValidateResourceConfig(self, asked: Any) -> Any:
        return CLASSES["Diagnostics"]()

    ValidateDataResourceConfig = ValidateResourceConfig

    def UpgradeResourceState(self, asked: Any) -> Any:
        return CLASSES["Upgraded"](upgraded_state=_value(json.loads(asked.raw_state.json)))

    def ReadResource(self, asked: Any) -> Any:
        state = _read(asked.current_state)
        there = state is not None and self._project.exists(asked.type_name, state)
        return CLASSES["HasRead"](new_state=_value(state if there else None))

    def PlanResourceChange(self, asked: Any) -> Any:
        prior, new = _read(asked.prior_state), _read(asked.proposed_new_state)
        if new is not None and prior is None:
            new = _filled(self._resources[asked.type_name], new, {}, UNKNOWN)
        return CLASSES["Planned"](planned_state=_value(new), legacy_type_system=True)

    def ApplyResourceChange(self, asked: Any) -> Any:
        prior, new = _read(asked.prior_state), _read(asked.planned_state)
        try:
            if new is None:
                assert prior is not None
                self._project.delete(asked.type_name, prior)
            elif prior is None:
                asked_for = _known(new)
                new = _filled(
                    self._resources[asked.type_name], asked_for, self._project.create(asked.type_name, asked_for), None
                )
            else:
                self._project.update(asked.type_name, prior, new)
        except RefusedResource as refusal:
            problem = CLASSES["Diagnostic"](severity=1, summary=str(refusal))
            return CLASSES["Applied"](new_state=_value(prior), diagnostics=[problem], legacy_type_system=True)
        return CLASSES["Applied"](new_state=_value(new), legacy_type_system=True)

    def ImportResourceState(self, asked: Any) -> Any:
        empty = _empty(self._resources[asked.type_name])
        state = {**empty, **self._project.adopt(asked.type_name, asked.id)}
        found = CLASSES["ImportedResource"](type_name=asked.type_name, state=_value(state))
        return CLASSES["Imported"](imported_resources=[found])

    def ReadDataSource(self, asked: Any) -> Any:
        values = _read(asked.config)
        assert values is not None
        return CLASSES["HasReadData"](state=_value({**values, **self._project.data(asked.type_name, values)}))

    def StopProvider(self, asked: Any) -> Any:
        return CLASSES["Nothing"]()


# ----------------------------------------------------------------------------------------------------------------------- values


def _read(value: Any) -> Values | None:
    told: Values | None = msgpack.unpackb(value.msgpack, raw=False) if value.msgpack else None
    return told


def _value(value: Values | None) -> Any:
    return CLASSES["DynamicValue"](msgpack=msgpack.packb(value))


def _known(value: Any) -> Any:
    """The configuration without computed attributes."""
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_known(each) for each in value]
    return None if isinstance(value, msgpack.ExtType) else value


def _filled(block: Values, values: Values, told: Values, missing: Any) -> Values:
    """The configuration with the cloud's attributes: `told` by name at any depth of blocks, `missing` for all other unset ones."""
    found = dict(values)
    for name in block["attributes"]:
        if found.get(name) is None:
            found[name] = told.get(name, missing)
    for name, inner in block["blocks"].items():
        if isinstance(found.get(name), list):
            added = told.get(name, [])
            found[name] = [
                _filled(inner, each, added[place] if place < len(added) else {}, missing)
                for place, each in enumerate(found[name])
            ]
    return found


def _empty(block: Values) -> Values:
    return {
        **dict.fromkeys(block["attributes"]),
        **{name: None if inner["single"] else [] for name, inner in block["blocks"].items()},
    }


def _schema(block: Values) -> Any:
    return CLASSES["Schema"](block=_block(block))


def _block(block: Values) -> Any:
    attributes = [
        CLASSES["Attribute"](
            name=name,
            type=json.dumps(kind).encode(),
            required=how == "required",
            optional=how == "optional",
            # The real provider computes many optional attributes; only its code defines which ones.
            computed=how != "required",
        )
        for name, (kind, how) in block["attributes"].items()
    ]
    nested = [
        CLASSES["NestedBlock"](
            type_name=name,
            block=_block(inner),
            nesting=SINGLE if inner["single"] else LIST,
            min_items=1 if inner["required"] else 0,
            max_items=0 if inner["many"] or inner["single"] else 1,
        )
        for name, inner in block["blocks"].items()
    ]
    return CLASSES["Block"](attributes=attributes, block_types=nested)


# ----------------------------------------------------------------------------------------------------------------------- server


@contextmanager
def google_provider(project: Project, directory: Path) -> Iterator[Mapping[str, str]]:
    """Yields the environment variables with which Terraform uses it."""
    provider = Provider(project)
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, _handlers(provider)),))
    socket = directory / "p.sock"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    where = {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "unix", "String": str(socket)},
    }
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({ADDRESS: where})}
    finally:
        server.stop(grace=None).wait()


def _handlers(provider: Provider) -> dict[str, Any]:
    return {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(getattr(provider, name)),
            request_deserializer=CLASSES[takes].FromString,
            response_serializer=CLASSES[gives].SerializeToString,
        )
        for name, (takes, gives) in METHODS.items()
    }


def _answering(method: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda asked, context: method(asked)
