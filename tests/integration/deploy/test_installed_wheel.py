"""An installed wheel is enough to deploy: the modules, the units and the packages of the master's machine are in it."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute_deploy.own_wheel import own_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Python of an environment with the wheel, beside the packages of this one and outside of the checkout."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "env", with_pip=False, symlinks=True)
    own = place / "env" / "bin" / "python"
    packages = subprocess.run(
        [str(own), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    these = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # A path alone, so that the editable installation of the checkout is not followed.
    (Path(packages) / "dependencies.pth").write_text(these + "\n")
    yield own


def said(python: Path, code: str, cwd: Path) -> str:
    done = subprocess.run([str(python), "-P", "-c", code], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_that_is_shipped_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "resolute_deploy/terraform/aws/variables.tf",
        "resolute_deploy/terraform/aws/root/provider.tf",
        "resolute_deploy/terraform/aws/root/.terraform.lock.hcl",
        "resolute_deploy/terraform/aws/modules/master/fetch.py",
        "resolute_deploy/terraform/gcp/variables.tf",
        "resolute_deploy/terraform/gcp/root/provider.tf",
        "resolute_deploy/terraform/gcp/modules/master/fetch.py",
        "resolute_deploy/terraform/shared/boot.sh",
        "resolute_deploy/systemd/resolute-master.service",
        "resolute_deploy/requirements.lock",
    } <= names


def test_the_flags_are_read_from_the_modules_of_the_wheel(python: Path, tmp_path: Path) -> None:
    code = (
        "from resolute_deploy.shipped import shipped, PACKAGE\n"
        "from resolute_deploy.cluster_directory import module_variables\n"
        "print(shipped('terraform').is_relative_to(PACKAGE), 'installed' in str(PACKAGE), len(module_variables('aws')))"
    )
    inside, installed, flags = said(python, code, tmp_path).split()
    assert (inside, installed) == ("True", "True") and int(flags) > 40


def test_an_installed_wheel_packs_itself_again(python: Path, wheel: Path, tmp_path: Path) -> None:
    """The master's machine installs what the person who deploys has tried, wherever that came from."""
    code = f"from pathlib import Path; from resolute_deploy.own_wheel import own_wheel; print(own_wheel(Path({str(tmp_path)!r})))"
    again = Path(said(python, code, tmp_path).strip())
    assert again.name == wheel.name
    first, second = zipfile.ZipFile(wheel), zipfile.ZipFile(again)
    names = {name for name in first.namelist() if not name.endswith("RECORD")}
    assert names == {name for name in second.namelist() if not name.endswith("RECORD")}
    assert all(first.read(name) == second.read(name) for name in names)
