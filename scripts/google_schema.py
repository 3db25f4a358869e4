"""Write what the tests know of Terraform's Google provider: tests/support/google_provider.json.

    pip download --no-deps cdktf-cdktf-provider-google==16.12.1
    python scripts/google_schema.py cdktf_cdktf_provider_google-16.12.1-py3-none-any.whl

The wheel (MPL-2.0, HashiCorp) describes hashicorp/google 6.50.0. Names, types and flags of the resources that terraform/gcp uses
are taken from it, and no text. Run it again when a module uses another resource: the tests say which one they miss.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hcl2

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "tests" / "support" / "google_provider.json"
PACKAGE = "@cdktf/provider-google"
OF_CDKTF = frozenset({"connection", "count", "dependsOn", "forEach", "lifecycle", "provider", "provisioners"})
PRIMITIVES = {"string": "string", "number": "number", "boolean": "bool"}
Json = dict[str, Any]


def used(kind: str) -> Iterator[str]:
    """Types of resources (`resource`) or data sources (`data`) in the modules."""
    found = set()
    for file in sorted((ROOT / "terraform" / "gcp").rglob("*.tf")):
        with file.open() as text:
            for block in hcl2.load(text).get(kind, []):
                found.add(next(iter(block)).strip('"'))
    yield from sorted(name for name in found if name.startswith("google_"))


def interface(wheel: Path) -> Mapping[str, Json]:
    """The types of the wheel's `.jsii`."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(archive.read(name))) as package:
            member = package.extractfile("package/.jsii")
            assert member is not None
            types: Mapping[str, Json] = json.loads(member.read())["types"]
            return types


class Reducer:
    def __init__(self, types: Mapping[str, Json]) -> None:
        self._types = types

    def of(self, terraform_type: str, *, data: bool) -> Json:
        words = terraform_type.removeprefix("google_").split("_")
        name = "".join(word.capitalize() for word in words)
        name = f"DataGoogle{name}" if data else name
        place = f"{PACKAGE}.{name[0].lower()}{name[1:]}.{name}"
        return self._block(f"{place}Config", place)

    def _block(self, config: str, exported: str) -> Json:
        attributes: Json = {}
        blocks: Json = {}
        for each in self._types[config].get("properties", []):
            if each["name"].rstrip("_") in OF_CDKTF:
                continue
            name, optional = _name(each), bool(each.get("optional"))
            kind = self._kind(each["type"])
            if kind is not None:
                attributes[name] = [kind, "optional" if optional else "required"]
                continue
            struct, many = self._struct(each["type"])
            block = self._block(struct, f"{struct}OutputReference")
            blocks[name] = {**block, "many": many, "required": not optional, "single": name == "timeouts"}
        for each in self._types.get(exported, {}).get("properties", []):
            name, kind = _snake(each["name"]), self._kind(each["type"]) or self._listed(each["type"])
            mine = each.get("immutable") and not each.get("static") and not name.endswith("_input")
            if (
                mine
                and kind
                and name not in attributes
                and name not in blocks
                and not name.startswith(("cdktf_", "tf_"))
            ):
                attributes[name] = [kind, "computed"]
        return {"attributes": dict(sorted(attributes.items())), "blocks": dict(sorted(blocks.items()))}

    def _kind(self, told: Json) -> Any:
        if "primitive" in told:
            return PRIMITIVES.get(told["primitive"])
        if "collection" in told:
            inner = self._kind(told["collection"]["elementtype"])
            outer = {"array": "list", "map": "map"}[told["collection"]["kind"]]
            return [outer, inner] if inner is not None else None
        if "union" in told:
            kinds = [self._kind(each) for each in told["union"]["types"]]
            return next((kind for kind in kinds if kind is not None), None)
        fqn = told.get("fqn", "")
        return {"cdktf.IResolvable": None, "cdktf.StringMap": ["map", "string"]}.get(fqn)

    def _struct(self, told: Json) -> tuple[str, bool]:
        """The struct of a block, and whether it may be repeated."""
        if "union" in told:
            return next(found for each in told["union"]["types"] if (found := self._maybe(each)) is not None)
        found = self._maybe(told)
        assert found is not None, told
        return found

    def _maybe(self, told: Json) -> tuple[str, bool] | None:
        if "collection" in told:
            inner = told["collection"]["elementtype"]
            return (inner["fqn"], True) if str(inner.get("fqn", "")).startswith(PACKAGE) else None
        return (told["fqn"], False) if str(told.get("fqn", "")).startswith(PACKAGE) else None

    def _listed(self, told: Json) -> Any:
        """A computed list of objects."""
        fqn = str(told.get("fqn", ""))
        if not (fqn.startswith(PACKAGE) and fqn.endswith("List")):
            return None
        item = self._types.get(fqn.removesuffix("List") + "OutputReference")
        if item is None:
            return None
        fields = {}
        for each in item.get("properties", []):
            name, kind = _snake(each["name"]), self._kind(each["type"]) or self._listed(each["type"])
            if each.get("immutable") and kind and not name.endswith("_input") and name not in ("internal_value", "fqn"):
                fields[name] = kind
        return ["list", ["object", fields]] if fields else None


def _name(told: Json) -> str:
    """As Terraform has it: the documentation's link ends with it."""
    found = re.search(r"#(\w+)\}", told.get("docs", {}).get("summary", "") + told.get("docs", {}).get("remarks", ""))
    return found[1] if found and found[1].replace("_", "") == told["name"].lower() else _snake(told["name"])


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.rstrip("_")).lower()


def main() -> int:
    reducer = Reducer(interface(Path(sys.argv[1])))
    told = {
        "source": "names, types and flags of hashicorp/google 6.50.0, from cdktf-cdktf-provider-google 16.12.1 (MPL-2.0)",
        "resources": {name: reducer.of(name, data=False) for name in used("resource")},
        "data": {name: reducer.of(name, data=True) for name in used("data")},
    }
    OUT.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    print(f"wrote {OUT.relative_to(ROOT)}: {len(told['resources'])} resources, {OUT.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
