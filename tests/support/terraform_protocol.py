"""The messages of Terraform's plugin protocol, version 6, that a provider of the tests uses.

Field numbers and types are those of HashiCorp; unused fields are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tfplugin6"
SERVICE = f"{PACKAGE}.Provider"
Field = descriptor_pb2.FieldDescriptorProto

_TYPES = {
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
    "int64": Field.TYPE_INT64,
    "bool": Field.TYPE_BOOL,
    "int32": Field.TYPE_INT32,
}
MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Nothing": {},
    "DynamicValue": {"msgpack": (1, "bytes"), "json": (2, "bytes")},
    "Diagnostic": {"severity": (1, "int32"), "summary": (2, "string"), "detail": (3, "string")},
    "RawState": {"json": (1, "bytes")},
    "Attribute": {
        "name": (1, "string"),
        "type": (2, "bytes"),
        "required": (4, "bool"),
        "optional": (5, "bool"),
        "computed": (6, "bool"),
    },
    "NestedBlock": {
        "type_name": (1, "string"),
        "block": (2, "Block"),
        "nesting": (3, "int32"),
        "min_items": (4, "int64"),
        "max_items": (5, "int64"),
    },
    "Block": {"version": (1, "int64"), "attributes": (2, "*Attribute"), "block_types": (3, "*NestedBlock")},
    "Schema": {"version": (1, "int64"), "block": (2, "Block")},
    "NamedSchema": {"key": (1, "string"), "value": (2, "Schema")},
    "Schemas": {
        "provider": (1, "Schema"),
        "resource_schemas": (2, "*NamedSchema"),
        "data_source_schemas": (3, "*NamedSchema"),
    },
    "ProviderConfig": {"config": (1, "DynamicValue")},
    "ProviderDiagnostics": {"diagnostics": (2, "*Diagnostic")},
    "Configure": {"terraform_version": (1, "string"), "config": (2, "DynamicValue")},
    "Config": {"type_name": (1, "string"), "config": (2, "DynamicValue")},
    "Diagnostics": {"diagnostics": (1, "*Diagnostic")},
    "Upgrade": {"type_name": (1, "string"), "version": (2, "int64"), "raw_state": (3, "RawState")},
    "Upgraded": {"upgraded_state": (1, "DynamicValue"), "diagnostics": (2, "*Diagnostic")},
    "Read": {"type_name": (1, "string"), "current_state": (2, "DynamicValue")},
    "HasRead": {"new_state": (1, "DynamicValue"), "diagnostics": (2, "*Diagnostic")},
    "Plan": {
        "type_name": (1, "string"),
        "prior_state": (2, "DynamicValue"),
        "proposed_new_state": (3, "DynamicValue"),
        "config": (4, "DynamicValue"),
    },
    "Planned": {
        "planned_state": (1, "DynamicValue"),
        "diagnostics": (4, "*Diagnostic"),
        "legacy_type_system": (5, "bool"),
    },
    "Apply": {
        "type_name": (1, "string"),
        "prior_state": (2, "DynamicValue"),
        "planned_state": (3, "DynamicValue"),
        "config": (4, "DynamicValue"),
    },
    "Applied": {
        "new_state": (1, "DynamicValue"),
        "diagnostics": (3, "*Diagnostic"),
        "legacy_type_system": (4, "bool"),
    },
    "Import": {"type_name": (1, "string"), "id": (2, "string")},
    "ImportedResource": {"type_name": (1, "string"), "state": (2, "DynamicValue")},
    "Imported": {"imported_resources": (1, "*ImportedResource"), "diagnostics": (2, "*Diagnostic")},
    "ReadData": {"type_name": (1, "string"), "config": (2, "DynamicValue")},
    "HasReadData": {"state": (1, "DynamicValue"), "diagnostics": (2, "*Diagnostic")},
}
METHODS: Mapping[str, tuple[str, str]] = {
    "GetProviderSchema": ("Nothing", "Schemas"),
    "ValidateProviderConfig": ("ProviderConfig", "ProviderDiagnostics"),
    "ConfigureProvider": ("Configure", "Diagnostics"),
    "ValidateResourceConfig": ("Config", "Diagnostics"),
    "ValidateDataResourceConfig": ("Config", "Diagnostics"),
    "UpgradeResourceState": ("Upgrade", "Upgraded"),
    "ReadResource": ("Read", "HasRead"),
    "PlanResourceChange": ("Plan", "Planned"),
    "ApplyResourceChange": ("Apply", "Applied"),
    "ImportResourceState": ("Import", "Imported"),
    "ReadDataSource": ("ReadData", "HasReadData"),
    "StopProvider": ("Nothing", "Nothing"),
}
"""Names of the request and response messages of each method."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="terraform_of_tests.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = Field.LABEL_REPEATED if kind.startswith("*") else Field.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    return file


def _classes() -> Mapping[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


CLASSES = _classes()
"""Message classes by the names of `MESSAGES`."""
