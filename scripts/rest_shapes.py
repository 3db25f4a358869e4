"""Writes the shapes of `resolute.wire.rest` that the contract has, from the contract and a table of what it leaves open.

python scripts/rest_shapes.py            # writes harness/resolute/wire/rest/<module>.py
python scripts/rest_shapes.py --check    # exit code 1 when a module is not current

The contract (`tests/support/rest-api.json`) says which fields a message has, their JSON types, and which of them are required.
The table (`scripts/rest_shapes.toml`) assigns messages to modules, and gives what the contract does not say:

    [auth]                   # a module: its docstring, and the calls whose messages it has
    doc = "Login."
    calls = ["Login"]        # their bodies, answers and parameters, and what those refer to, unless they have an entry

    [auth.User]              # a message, an enum, or the parameters of a call (`...Query`)
    doc = "A user."
    contract = "v1User"      # its name in the contract; without this key, `v1` and its own name
    omit = ["roleIds"]       # fields that are not served
    remote = "bool = False"  # a field for which the rule does not hold: its type, and its default if it has one
    warning = ["str | None = None", "What its owner should know."]  # a field with a docstring, or beyond the contract

The rule: an `object` is a mapping, a field whose name ends in `Time` or `At` is a time. A required field has no default. Of the
optional ones, a list or map is empty, `limit` and `offset` are 0, an order is UNSPECIFIED, and any other is None. Fields are sorted
by name, those without a default first.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = ROOT / "tests" / "support" / "rest-api.json"
TABLE = Path(__file__).with_suffix(".toml")
SHAPES = ROOT / "harness" / "resolute" / "wire" / "rest"

ENUMS = "enums"
NOT_FIELDS = ("doc", "contract", "omit")
PLAIN = {"string": "str", "int": "int", "float": "float", "boolean": "bool", "object": "Mapping[str, Any]"}
IMPORTS = {
    "Mapping": "from collections.abc import Mapping",
    "dataclass": "from dataclasses import dataclass",
    "field": "from dataclasses import field",
    "datetime": "from datetime import datetime",
    "StrEnum": "from enum import StrEnum",
    "Annotated": "from typing import Annotated",
    "Any": "from typing import Any",
    "Int64": "from resolute.wire.codec import Int64",
    "Key": "from resolute.wire.codec import Key",
}
HEADER = "# Written by scripts/rest_shapes.py: change its table or the contract, not this file."


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A class that is written. `contract`: its message, enum or operation there; None where the contract gives no name."""

    module: str
    name: str
    contract: str | None
    doc: str
    omit: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def of_query(self) -> bool:
        return self.name.endswith("Query")


class Shapes:
    """All entries: those of the table, and those that the calls of its modules need."""

    def __init__(self, contract: Mapping[str, Any], table: Mapping[str, Any]) -> None:
        self.contract = contract
        self.table = table
        self.calls = {call["op"]: call for call in contract["endpoints"] if call.get("op")}
        self.entries: list[Entry] = []
        self.class_of: dict[str, Entry] = {}  # by name in the contract
        self.module_of = dict(own_classes())
        for module, listed in table.items():
            for name, given in listed.items():
                if isinstance(given, dict):
                    self._add(self._listed(module, name, given))
        for module, listed in table.items():
            for operation in listed.get("calls", ()):
                self._add_call(module, self.calls[operation])

    def text(self, module: str) -> str:
        """The source of a module, not yet formatted."""
        entries = [entry for entry in self.entries if entry.module == module]
        body = "\n\n".join(self._enum(entry) if module == ENUMS else self._message(entry) for entry in entries)
        used = set(re.findall(r"[A-Za-z_]\w*", body))
        imports = [line for name, line in IMPORTS.items() if name in used]
        imports += [
            f"from resolute.wire.rest.{home} import {name}"
            for name, home in sorted(self.module_of.items())
            if name in used and home != module
        ]
        doc = self.table[module]["doc"]
        lines = [f'"""{doc}"""', "", HEADER, "", "from __future__ import annotations", "", *imports, "", body, ""]
        return "\n".join(lines)

    def _listed(self, module: str, name: str, given: Mapping[str, Any]) -> Entry:
        known = self.contract["enums" if module == ENUMS else "types"]
        named = given.get("contract")
        if name.endswith("Query"):
            named = named or name.removesuffix("Query")
            if named not in self.calls:
                raise SystemExit(f"{TABLE.name}: {module}.{name}: the contract has no operation {named!r}")
        elif named is None:
            named = next((each for each in (f"v1{name}", name) if each in known), None)
        elif named not in known:
            raise SystemExit(f"{TABLE.name}: {module}.{name}: the contract has no {named!r}")
        fields = {key: value for key, value in given.items() if key not in NOT_FIELDS}
        return Entry(
            module=module,
            name=name,
            contract=named,
            doc=given["doc"],
            omit=tuple(given.get("omit", ())),
            given=fields,
        )

    def _add(self, entry: Entry) -> None:
        if self.module_of.setdefault(entry.name, entry.module) != entry.module:
            raise SystemExit(f"{TABLE.name}: {entry.name} is in {self.module_of[entry.name]} and in {entry.module}")
        self.entries.append(entry)
        if entry.contract is not None and not entry.of_query:
            self.class_of[entry.contract] = entry

    # -------------------------------------------------------------------------------------------------- whole calls

    def _add_call(self, module: str, call: Mapping[str, Any]) -> None:
        request, answer = call.get("request") or {}, call.get("response") or {}
        for named in (request.get("body_type"), answer.get("type")):
            for inner in re.findall(r"\w+", named or ""):
                self._add_type(module, inner)
        query = f"{call['op']}Query"
        if request.get("query") and query not in self.module_of:
            self._add(Entry(module=module, name=query, contract=call["op"], doc=f"Query of `{call['op']}`."))
            for inner in {part for each in request["query"].values() for part in re.findall(r"\w+", each["type"])}:
                self._add_type(module, inner)

    def _add_type(self, module: str, named: str) -> None:
        """Adds a type of the contract and what it refers to, unless they are there."""
        if named in self.class_of:
            return
        doc = f"`{named}` of the contract."
        if named in self.contract["enums"]:
            self._add(Entry(module=ENUMS, name=self._free_name(named), contract=named, doc=doc))
        elif named in self.contract["types"]:
            self._add(Entry(module=module, name=self._free_name(named), contract=named, doc=doc))
            for each in self.contract["types"][named].values():
                for inner in re.findall(r"\w+", each["type"]):
                    self._add_type(module, inner)

    def _free_name(self, named: str) -> str:
        """Without its `v1`, unless that name is taken."""
        short = named.removeprefix("v1")
        short = short[0].upper() + short[1:]
        return named[0].upper() + named[1:] if short in self.module_of else short

    # ------------------------------------------------------------------------------------------------------- source

    def _enum(self, entry: Entry) -> str:
        assert entry.contract is not None
        values = list(self.contract["enums"][entry.contract])
        prefix = _prefix(values)
        members = [f'    {value.removeprefix(prefix).upper()} = "{value}"' for value in values]
        return "\n".join([f"class {entry.name}(StrEnum):", f'    """{entry.doc}"""', "", *members, ""])

    def _message(self, entry: Entry) -> str:
        fields: dict[str, tuple[str, str | None]] = {}
        for key, each in self._fields(entry).items():
            if key not in entry.omit:
                fields[snake(key)] = (self._declared(key, each), None)
        for name, given in entry.given.items():
            fields[name] = (given, None) if isinstance(given, str) else (given[0], given[1])
        lines = [
            "@dataclass(frozen=True, slots=True, kw_only=True)",
            f"class {entry.name}:",
            f'    """{entry.doc}"""',
            "",
        ]
        for name, (declared, doc) in sorted(fields.items(), key=lambda item: (" = " in item[1][0], item[0])):
            lines.append(f"    {name}: {declared}")
            if doc is not None:
                lines.append(f'    """{doc}"""')
        return "\n".join([*lines, ""])

    def _fields(self, entry: Entry) -> Mapping[str, Mapping[str, Any]]:
        if entry.contract is None:
            return {}
        if not entry.of_query:
            found: Mapping[str, Mapping[str, Any]] = self.contract["types"][entry.contract]
            return found
        parameters = self.calls[entry.contract]["request"]["query"]
        return {key: each for key, each in parameters.items() if "." not in key}

    def _declared(self, key: str, each: Mapping[str, Any]) -> str:
        """Type and default of a field by the rule."""
        type_ = self._type(each["type"], key)
        if camel(snake(key)) != key:
            type_ = f'Annotated[{type_}, Key("{key}")]'
        if each["required"]:
            return type_
        if each["type"].startswith("list["):
            return f"{type_} = ()"
        if each["type"].startswith("map["):
            return f"{type_} = field(default_factory=dict)"
        if key in ("limit", "offset"):
            return f"{type_} = 0"
        if key in ("orderBy", "sortBy"):
            return f"{type_} = {type_}.UNSPECIFIED"
        return f"{type_} | None = None"

    def _type(self, text: str, key: str = "") -> str:
        if text == "string" and (key.endswith(("Time", "At")) or key in ("time", "timestamp")):
            return "datetime"
        if text in PLAIN:
            return PLAIN[text]
        if found := re.fullmatch(r"list\[(.*)\]", text):
            return f"tuple[{self._type(found[1])}, ...]"
        if found := re.fullmatch(r"map\[string, (.*)\]", text):
            return f"Mapping[str, {self._type(found[1])}]"
        if text not in self.class_of:
            raise SystemExit(f"{TABLE.name}: no module has {text} (field {key})")
        return self.class_of[text].name


def own_classes() -> Iterator[tuple[str, str]]:
    """Class and module of the shapes beyond the contract, which are written by hand."""
    table = tomllib.loads(TABLE.read_text())
    for path in sorted(SHAPES.glob("*.py")):
        if path.stem not in table:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    yield node.name, path.stem


def snake(key: str) -> str:
    """`jobsAhead` -> `jobs_ahead`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower()


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _prefix(values: list[str]) -> str:
    """What all of them begin with, up to an underscore."""
    words = [value.split("_") for value in values]
    shared = 0
    while all(len(each) > shared + 1 and each[shared] == words[0][shared] for each in words):
        shared += 1
    return "".join(f"{word}_" for word in words[0][:shared])


def formatted(text: str) -> str:
    """As `ruff` has it: imports merged, sorted and only those that are used, lines broken."""
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(SHAPES / "shape.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def written() -> dict[Path, str]:
    """Every module that is written, and its source."""
    shapes = Shapes(json.loads(CONTRACT.read_text()), tomllib.loads(TABLE.read_text()))
    return {SHAPES / f"{module}.py": formatted(shapes.text(module)) for module in shapes.table}


def main(arguments: list[str]) -> int:
    stale = [path for path, text in written().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current: run python scripts/rest_shapes.py")
        return 1 if stale else 0
    for path, text in written().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
