"""The provider of `docs/adding/a-cloud.md`, as it stands there and registered by one entry, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from resolute.providers import PROVIDERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adding" / "a-cloud.md"

REGISTERED = """
import sys
import resolute.providers as providers
providers.PROVIDERS["plum"] = providers.Registration(package="plum")
"""

OFFERS = """
from resolute_cli.main import main
sys.exit(main(["pool", *sys.argv[1:]]))
"""

OPENED = """
from pathlib import Path
from resolute.clock import SystemClock
from resolute.config import load_master_config
from resolute.config.masking import masked
from resolute.config.reference import sections
from resolute_master.api.render.providers import provider_fields
from resolute_master.pools.clouds import check, cloud_of, completed
from resolute_provisioner.clouds.driver import CloudPlace
config = completed(load_master_config(sys.argv[1], {}, {}), {})
check(config)
(pool,) = config.resource_pools
cloud = cloud_of(pool, CloudPlace(directory=Path("."), environ={}, clock=SystemClock(), wheel=lambda: None))
print(type(cloud).__name__, provider_fields(pool.provider, ())["agent_docker_image"])
print(masked(config)["resource_pools"][0]["provider"]["startup_script"])
print(next(line for line in sections()["master-keys"].splitlines() if "provider.gpus" in line))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    package = tmp_path / "plum"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (package / name).write_text(code, encoding="utf-8")
    return tmp_path


def ran(directory: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", REGISTERED + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
        cwd=directory,
    )


def a_file(directory: Path, **keys: object) -> str:
    file = directory / "master.yaml"
    provider = {"type": "plum", "size": "large", "gpus": 4, "master_url": "http://m.example:8080", **keys}
    pools = [{"pool_name": "default", "provider": provider}]
    storage = {"type": "s3", "bucket": "checkpoints"}
    file.write_text(yaml.safe_dump({"checkpoint_storage": storage, "resource_pools": pools}), encoding="utf-8")
    return str(file)


def test_the_provider_of_the_page_is_validated_and_its_offers_are_shown(directory: Path) -> None:
    file = a_file(directory, prices={"large": {"on_demand": 2.5}})
    done = ran(directory, OFFERS, "offers", "--config", file, "--csv")
    assert done.returncode == 0 and "plum/large/on_demand,4,2.5" in done.stdout, done.stderr
    wrong = ran(directory, OFFERS, "validate", a_file(directory, gpu=1))
    assert wrong.returncode == 1 and "provider.gpu: is not a known key; did you mean 'gpus'?" in wrong.stderr
    unreachable = ran(directory, OFFERS, "validate", a_file(directory, master_url="http://local-ipv4:8080"))
    assert unreachable.returncode == 1 and "names local-ipv4, a word of another cloud" in unreachable.stderr


def test_a_master_opens_the_provider_of_the_page_and_hides_its_secrets(directory: Path) -> None:
    done = ran(directory, OPENED, a_file(directory, agent_docker_image="agent:1", startup_script="export TOKEN=1"))
    assert done.returncode == 0, done.stderr
    opened, secret, row = done.stdout.splitlines()
    assert opened == "FakeCloud agent:1" and secret == "********"
    assert row == "| `resource_pools[].provider.gpus` (plum) | integer ≥ 1 | `1` | GPUs of each. |"


READ = """
from resolute.config import load_master_config
from resolute_master.pools.pool_file import offers_in
from resolute.clock import SystemClock
from pathlib import Path
offers_in(Path(sys.argv[1]), SystemClock().now())
print(*sys.modules, sep="\\n")
"""


def test_a_file_is_read_without_the_other_providers_and_without_any_sdk(directory: Path) -> None:
    done = ran(directory, READ, a_file(directory))
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "plum.driver" in imported
    others = {each.package for each in PROVIDERS.values()} | {"boto3", "botocore", "google"}
    assert imported.isdisjoint(others), imported & others
