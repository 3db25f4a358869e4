"""Build the images of master, agent and tasks, and write a bill of materials for each.

    python -m scripts.images [--base IMAGE] [--cuda-base IMAGE] [--wheelhouse DIRECTORY] [--only NAME]...

Needs docker. Each image is tagged with the version of the package and as `latest`. `--base` is the image that master, agent and the
CPU tasks are made from, `--cuda-base` that of tasks on NVIDIA GPUs. With `--wheelhouse`, a directory that `pip download -r
requirements/master.lock` has filled, no index is asked for master and agent.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.sbom import image_bill

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {
    "master.lock": ROOT / "requirements" / "master.lock",
    "agent.lock": ROOT / "agent_image" / "resolute_agent" / "requirements.lock",
}
CUDA_BASE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
TORCH = (ROOT / "requirements" / "torch.in").read_text().strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image: what `docker build` is given beside its name."""

    name: str
    context: Path
    target: str = ""
    arguments: tuple[tuple[str, str], ...] = ()


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the images of master, agent and tasks.")
    parser.add_argument("--base", default="", help="base of master, agent and CPU tasks (default: a pinned python)")
    parser.add_argument("--cuda-base", default=CUDA_BASE, help=f"base of tasks on NVIDIA GPUs (default: {CUDA_BASE})")
    parser.add_argument("--wheelhouse", type=Path, help="directory with the packages of master and agent")
    parser.add_argument("--prefix", default="resolute", help="of the images' names (default: resolute)")
    parser.add_argument(
        "--task-requirements", default=TORCH, help=f"packages of the image for CPU tasks (default: {TORCH})"
    )
    parser.add_argument("--only", action="append", choices=NAMES, help="build this one; may be given again")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="of the bills (default: dist)")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="resolute-images-") as place:
        try:
            version = fill_context(Path(place), options.wheelhouse)
            for image in wanted(options, Path(place)):
                tag = f"{image.name}:{version}"
                build(image, tag)
                options.directory.mkdir(parents=True, exist_ok=True)
                print(f"{tag} {image_bill(tag, options.directory)}", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"{' '.join(error.cmd[:2])} failed with {error.returncode}: {error.stderr or ''}", file=sys.stderr)
            return 1
        except FileNotFoundError as error:
            print(f"{error.filename} is not there", file=sys.stderr)
            return 1
    return 0


NAMES = ("master", "agent", "task-cpu", "task-cuda")


def wanted(options: argparse.Namespace, context: Path) -> list[Image]:
    base = (("BASE", options.base),) if options.base else ()
    offline = (("PIP_OPTIONS", "--no-index"),) if options.wheelhouse else ()
    tasks = ROOT / "agent_image"
    images = {
        "agent": Image(name=f"{options.prefix}-agent", context=context, target="agent", arguments=(*base, *offline)),
        "master": Image(name=f"{options.prefix}-master", context=context, target="master", arguments=(*base, *offline)),
        "task-cpu": Image(
            name=f"{options.prefix}-task-cpu",
            context=tasks,
            arguments=(*base, ("REQUIREMENTS", options.task_requirements)),
        ),
        "task-cuda": Image(name=f"{options.prefix}-task-cuda", context=tasks, arguments=(("BASE", options.cuda_base),)),
    }
    return [image for name, image in images.items() if not options.only or name in options.only]


def fill_context(place: Path, wheelhouse: Path | None) -> str:
    """What the Dockerfile of master and agent copies; the version of the package. Raises `CalledProcessError`."""
    build_wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build_wheel, cwd=ROOT, check=True, capture_output=True, text=True)
    (wheel,) = place.glob("resolute_ml-*.whl")
    shutil.copy(ROOT / "images" / "Dockerfile", place)
    for name, lock in LOCKS.items():
        shutil.copy(lock, place / name)
    (place / "wheels").mkdir()
    (place / "wheels" / ".keep").touch()  # COPY takes no directory that is not there
    for each in sorted(wheelhouse.glob("*.whl")) if wheelhouse is not None else ():
        shutil.copy(each, place / "wheels")
    return wheel.name.split("-")[1]


def build(image: Image, tag: str) -> None:
    """Raises `CalledProcessError`; what is built is on the terminal."""
    command = ["docker", "build", "-t", tag, "-t", f"{image.name}:latest"]
    command += ["--target", image.target] if image.target else []
    command += [word for name, value in image.arguments for word in ("--build-arg", f"{name}={value}")]
    subprocess.run([*command, str(image.context)], check=True, env={"PATH": os.defpath, **os.environ})


if __name__ == "__main__":
    sys.exit(main())
