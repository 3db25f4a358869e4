"""The shapes of the contract are what `scripts/rest_shapes.py` writes, and it can write those of every call."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from resolute.wire.codec import from_wire, to_wire, wire_names

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "rest_shapes.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("rest_shapes", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def contract(script: ModuleType) -> Any:
    return json.loads(script.CONTRACT.read_text())


def test_the_modules_are_what_the_script_writes(script: ModuleType) -> None:
    stale = [path.name for path, text in script.written().items() if path.read_text() != text]
    assert stale == [], "run: python scripts/rest_shapes.py"


def test_a_module_of_every_call_of_the_contract_needs_no_class_by_hand(script: ModuleType, contract: Any) -> None:
    operations = sorted({call["op"] for call in contract["endpoints"] if call.get("op")})
    table = tomllib.loads(script.TABLE.read_text())
    table["later"] = {"doc": "The calls that nothing serves yet.", "calls": operations}
    shapes = script.Shapes(contract, table)
    added = [entry for entry in shapes.entries if entry.module == "later"]
    assert len(added) > 100

    names: dict[str, Any] = {"__name__": "later"}
    exec(shapes.text(script.ENUMS), names)
    enums = {name: value for name, value in names.items() if isinstance(value, type)}
    later = ModuleType("later")
    vars(later).update(enums)
    sys.modules["later"] = later
    try:
        source = shapes.text("later").replace("from resolute.wire.rest.enums import", "from later import")
        exec(compile(source, "later", "exec"), vars(later))
        for entry in added:
            cls = getattr(later, entry.name)
            assert set(wire_names(cls).values()) == set(shapes._fields(entry)), entry.name
            if all(_has_default(each) for each in dataclasses.fields(cls)):
                assert from_wire(cls, to_wire(cls())) == cls()
            typing.get_type_hints(cls)
    finally:
        del sys.modules["later"]


def _has_default(each: dataclasses.Field[Any]) -> bool:
    return each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"Nothing": {"doc": "", "contract": "v1Nothing"}}, "later.Nothing: the contract has no 'v1Nothing'"),
        ({"NothingQuery": {"doc": ""}}, "later.NothingQuery: the contract has no operation 'Nothing'"),
        ({"User": {"doc": "A second one."}}, "User is in auth and in later"),
    ],
)
def test_a_mistake_in_the_table_is_named(script: ModuleType, contract: Any, listed: Any, said: str) -> None:
    table = tomllib.loads(script.TABLE.read_text())
    with pytest.raises(SystemExit, match=said):
        script.Shapes(contract, {**table, "later": {"doc": "", **listed}})
