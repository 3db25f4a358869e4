"""The Terraform files of a cloud, read by python-hcl2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import hcl2

from resolute_deploy.shipped import shipped


def text(value: Any) -> str:
    """The text without the quotes and braces that python-hcl2 keeps."""
    return str(value).strip('"')


@cache
def _loaded(file: Path) -> dict[str, Any]:
    with file.open() as content:
        told: dict[str, Any] = hcl2.load(content)
        return told


class TerraformFiles:
    """Reads a file on demand: reading all files takes seconds in each worker that collects tests."""

    def __init__(self, cloud: str) -> None:
        self.cloud = cloud
        self.directory = shipped("terraform") / cloud
        self.files = sorted(self.directory.rglob("*.tf"))

    @cached_property
    def variables(self) -> list[tuple[str, dict[str, Any]]]:
        """Place and body."""
        return [(f"{self.place(file)}:{name}", body) for file, name, body in self.blocks("variable")]

    @cached_property
    def resources(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Place, name and body."""
        return [(f"{self.place(file)}:{name}", name, body) for file, name, body in self.blocks("resource")]

    def place(self, file: Path) -> str:
        return file.relative_to(self.directory).as_posix()

    def blocks(self, kind: str) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        """File, labels with dots between them, and body."""
        for file in self.files:
            for block in _loaded(file).get(kind, []):
                labels = []
                while len(block) == 1 and isinstance(next(iter(block.values())), dict):
                    ((label, block),) = block.items()
                    labels.append(text(label))
                yield file, ".".join(labels), block

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Bodies of the resources of a type; there is at least one."""
        found = [body for _, name, body in self.resources if name.startswith(f"{kind}.")]
        assert found, f"there is no {kind}"
        return found
