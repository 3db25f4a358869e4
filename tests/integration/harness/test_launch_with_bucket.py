"""A bucket that cannot be used ends a trial before its program begins, with one message that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_front import Fault, faulty_front
from support.harness_master import FakeMaster, task_variables
from support.harness_tasks import HARNESS, Ended, Tasks
from support.object_stores import ObjectStore, moto_store

DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with moto_store() as made:
        yield made


def launched(master: FakeMaster, tasks: Tasks, root: Path, store: ObjectStore, **changes: str) -> Ended:
    """A trial whose program says `began`."""
    config = {"checkpoint_storage": {**store.config, **changes}}
    variables = task_variables(master, root, entrypoint=["echo", "began"], config=config)
    return tasks.run({"PYTHONPATH": f"{root}{os.pathsep}{HARNESS}", **variables, **store.environ})


def said(ended: Ended) -> str:
    """The one message."""
    assert ended.code == 1 and "began" not in ended.out, ended
    (line,) = [line for line in ended.err.splitlines() if line.startswith("ERROR")]
    assert "Traceback" not in ended.err
    return line


def test_a_bucket_that_can_be_used_lets_the_program_begin(
    master: FakeMaster, tasks: Tasks, tmp_path: Path, store: ObjectStore
) -> None:
    ended = launched(master, tasks, tmp_path, store)
    assert (ended.code, ended.out) == (0, "began\n"), ended.err


def test_a_bucket_that_is_not_there(master: FakeMaster, tasks: Tasks, tmp_path: Path, store: ObjectStore) -> None:
    line = said(launched(master, tasks, tmp_path, store, bucket="nowhere"))
    assert "s3://nowhere" in line and "there is no such bucket (asked as the access key test" in line


def test_a_write_that_is_denied(master: FakeMaster, tasks: Tasks, tmp_path: Path, store: ObjectStore) -> None:
    with faulty_front(store.address) as front:
        front.wanted = lambda method, path: method == "PUT"
        front.always = Fault(status=403, body=DENIED)
        line = said(launched(master, tasks, tmp_path, store, endpoint_url=front.address))
    assert "s3://checkpoints" in line and "to the access key test" in line and "Grant it s3:ListBucket" in line


def test_an_image_without_the_client(master: FakeMaster, tasks: Tasks, tmp_path: Path, store: ObjectStore) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('it is not installed')\n")
    line = said(launched(master, tasks, tmp_path, store))
    assert "the Python package boto3 is missing here" in line and "pip install 'resolute-ml[aws]'" in line
