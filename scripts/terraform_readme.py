"""Write the README of each Terraform module: what it makes, its variables and its outputs, as its files say.

    python scripts/terraform_readme.py [--check]

The first comment of `main.tf` is the text. With `--check` nothing is written, and a README that differs ends this with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2

from resolute_deploy.variables import Variable, read_variables

ROOT = Path(__file__).resolve().parents[1] / "terraform"
EXAMPLE = {
    "aws": """```hcl
module "resolute" {
  source = "./terraform/aws"

  cluster_id   = "vision"
  keypair      = "ops"
  inbound_cidr = ["203.0.113.0/24"]
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
}
```

[examples](examples) has more. `det deploy aws up` does the same and looks first: [docs/deploy.md](../../docs/deploy.md).
""",
    "gcp": """```hcl
module "resolute" {
  source = "./terraform/gcp"

  cluster_id   = "vision"
  project_id   = "vision-123456"
  inbound_cidr = ["203.0.113.0/24"]
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
}
```

[examples](examples) has more. `det deploy gcp up` does the same and looks first: [docs/deploy.md](../../docs/deploy.md), which
also names the interfaces that the project needs.
""",
}


def modules() -> Iterator[Path]:
    """Directories with a `variables.tf` that are modules by themselves."""
    for file in sorted(ROOT.rglob("variables.tf")):
        if file.parent.name != "root" and ".terraform" not in file.parts:
            yield file.parent


def readme(module: Path) -> str:
    place = module.relative_to(ROOT).as_posix()
    parts = [f"# {place}", " ".join(_first_comment(module / "main.tf"))]
    if place in EXAMPLE:
        parts.append(EXAMPLE[place].rstrip())
    parts += ["## Variables", _variables(read_variables([module / "variables.tf"])), "## Outputs", _outputs(module)]
    return "\n\n".join(parts) + "\n"


def _first_comment(file: Path) -> Iterator[str]:
    for line in file.read_text().splitlines():
        if not line.startswith("# "):
            return
        yield line.removeprefix("# ")


def _variables(variables: tuple[Variable, ...]) -> str:
    rows = ["| name | type | default | |", "|---|---|---|---|"]
    for each in variables:
        default = "required" if each.required else f"`{json.dumps(each.default)}`"
        rows.append(f"| `{each.name}` | `{each.type}` | {default} | {each.description} |")
    return "\n".join(rows)


def _outputs(module: Path) -> str:
    rows = ["| name | |", "|---|---|"]
    with (module / "outputs.tf").open() as text:
        told: dict[str, Any] = hcl2.load(text)
    for block in told.get("output", []):
        ((name, body),) = block.items()
        rows.append(f"| `{name.strip(chr(34))}` | {body['description'].strip(chr(34))} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the README of each Terraform module.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where one differs")
    check = parser.parse_args().check
    different = []
    for module in modules():
        file, text = module / "README.md", readme(module)
        if not file.exists() or file.read_text() != text:
            different.append(file)
            if not check:
                file.write_text(text)
    for file in different:
        print(f"{'differs' if check else 'wrote'}: {file.relative_to(ROOT.parent)}")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
