"""An interrupted training and an uninterrupted one report the same losses, bit for bit."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute.storage import StorageUnavailable, storage_from_url
from support.object_stores import moto_store

pytestmark = pytest.mark.needs("torch")

LENGTH = 26  # three epochs of 8 steps, and a bit
CUTS = sorted(random.Random(20).sample(range(1, LENGTH), 5))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    import torch  # seconds, in each worker that collects tests

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(
    directory: Path,
    *,
    workers: int,
    until: int,
    resume: str | None = None,
    validation: int = 4,
    storage: str | None = None,
    **fit: object,
) -> None:
    from resolute import pytorch
    from support.harness_training import PointsTrial

    hparams = {"workers": workers}
    with pytorch.init(hparams=hparams, trial_seed=5, local_dir=directory, checkpoint_storage=storage) as context:
        pytorch.Trainer(PointsTrial(context), context).fit(
            max_length=pytorch.Batch(until),
            reporting_period=pytorch.Batch(1),
            validation_period=pytorch.Batch(validation),
            checkpoint_policy="none",
            latest_checkpoint=resume,
            **fit,  # type: ignore[arg-type]
        )


def reported(directory: Path, group: str) -> dict[int, dict[str, float]]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {line["steps_completed"]: line["metrics"] for line in lines if line.get("group") == group}


def checkpoints(directory: Path) -> dict[int, str]:
    found = {}
    for manifest in (directory / "checkpoints").glob("*/manifest.json"):
        body = json.loads(manifest.read_text())
        found[body["steps_completed"]] = body["uuid"]
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("uninterrupted")
    train(directory, workers=0, until=LENGTH)
    return directory


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", CUTS)
def test_losses_after_a_cut_are_bit_equal(uninterrupted: Path, tmp_path: Path, cut: int, workers: int) -> None:
    train(tmp_path, workers=workers, until=cut, validation=1000)
    train(tmp_path, workers=workers, until=LENGTH, resume=checkpoints(tmp_path)[cut])
    expected, found = reported(uninterrupted, "training"), reported(tmp_path, "training")
    assert sorted(found) == list(range(1, LENGTH + 1))
    assert found == expected
    validations = reported(uninterrupted, "validation")
    assert all(found == validations[step] for step, found in reported(tmp_path, "validation").items() if step > cut)


def test_losses_after_a_cut_are_bit_equal_on_a_machine_that_has_the_bucket_alone(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each half has a directory of its own, and nothing in common but the bucket."""
    first, second, bucket = tmp_path / "first", tmp_path / "second", "s3://checkpoints/exact"
    with moto_store() as store:
        for name, value in {**store.environ, "AWS_ENDPOINT_URL": store.address}.items():
            monkeypatch.setenv(name, value)
        train(first, workers=0, until=CUTS[0], validation=1000, storage=bucket)
        (saved,) = storage_from_url(bucket).list()
        train(second, workers=0, until=LENGTH, resume=saved, storage=bucket)
    found = {**reported(first, "training"), **reported(second, "training")}
    assert sorted(found) == list(range(1, LENGTH + 1))
    assert found == reported(uninterrupted, "training")


def test_every_epoch_sees_every_sample_once_in_an_order_of_its_own() -> None:
    import torch

    from resolute import pytorch

    loader = pytorch.DataLoader(torch.utils.data.TensorDataset(torch.arange(37)), batch_size=5, shuffle=True)
    plan = loader.plan(seed=5, rank=0, size=1)
    orders = [plan.order(epoch) for epoch in range(3)]
    assert all(sorted(order) == list(range(37)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    batches = loader.training_batches(plan, 6)
    seen = [int(value) for batch in (next(batches), next(batches)) for value in batch[0]]
    assert seen == orders[0][30:37], "the last batch is short, then the next epoch begins"
    assert next(batches)[0].tolist() == orders[1][:5]


def test_two_ranks_share_each_global_batch() -> None:
    import torch

    from resolute import pytorch

    loader = pytorch.DataLoader(torch.utils.data.TensorDataset(torch.arange(37)), batch_size=5, shuffle=True)
    plans = [loader.plan(seed=5, rank=rank, size=2) for rank in range(2)]
    order = plans[0].order(1)
    parts = [plan.batch(plan.order(1), 1, 2).indices for plan in plans]
    assert sorted(parts[0] + parts[1]) == sorted(order[20:30]) and not set(parts[0]) & set(parts[1])
    ragged = [loader.plan(seed=5, rank=rank, size=2, ragged=True) for rank in range(2)]
    shares = [[len(batch[0]) for batch in loader.epoch_batches(plan)] for plan in ragged]
    assert shares == [[5, 5, 5, 4], [5, 5, 5, 3]]


def test_a_corrupt_checkpoint_falls_back_to_the_one_before(uninterrupted: Path, tmp_path: Path) -> None:
    from resolute import pytorch

    train(tmp_path, workers=0, until=20, checkpoint_period=pytorch.Batch(10))
    saved = checkpoints(tmp_path)
    state = tmp_path / "checkpoints" / saved[20] / "state.pt"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    train(tmp_path, workers=0, until=LENGTH, resume=saved[20])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line["steps_completed"] for line in lines if line.get("group") == "training"]
    assert steps == [*range(1, 21), *range(11, LENGTH + 1)]
    assert reported(tmp_path, "training") == reported(uninterrupted, "training")


def test_with_no_good_checkpoint_training_begins_anew(uninterrupted: Path, tmp_path: Path) -> None:
    train(tmp_path, workers=0, until=8)
    (only,) = checkpoints(tmp_path).values()
    (tmp_path / "checkpoints" / only / "state.pt").unlink()
    train(tmp_path, workers=0, until=LENGTH, resume=only)
    assert reported(tmp_path, "training") == reported(uninterrupted, "training")


@pytest.mark.parametrize("holds", [(), ("another-trial",)])
def test_a_storage_that_has_none_of_the_checkpoints_is_not_trained_into(tmp_path: Path, holds: tuple[str, ...]) -> None:
    """As on a machine where its file system is not mounted: what was trained is not lost, and must not be trained again."""
    from resolute import pytorch

    train(tmp_path, workers=0, until=8, checkpoint_period=pytorch.Batch(4))
    saved = checkpoints(tmp_path)
    (tmp_path / "checkpoints").rename(tmp_path / "unmounted")
    for name in holds:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(StorageUnavailable, match=rf"{saved[8]}.*mounted"):
        train(tmp_path, workers=0, until=LENGTH, resume=saved[8])
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_another_batch_size_is_refused(tmp_path: Path) -> None:
    from resolute import pytorch
    from support.harness_training import PointsTrial

    train(tmp_path, workers=0, until=4)
    (only,) = checkpoints(tmp_path).values()
    progress = tmp_path / "checkpoints" / only / "trainer.json"
    body = json.loads(progress.read_text())
    with pytorch.init(hparams={"workers": 0}, trial_seed=6, local_dir=tmp_path) as context:
        trainer = pytorch.Trainer(PointsTrial(context), context)
        with pytest.raises(InvalidInput, match="trial seed of 5, it is 6"):
            trainer.fit(max_length=pytorch.Batch(8), latest_checkpoint=only)
    assert body["global_batch_size"] == 5 and body["batches_per_epoch"] == 8


def test_checkpoints_hold_no_pickled_objects(tmp_path: Path) -> None:
    import torch

    from resolute import pytorch

    train(tmp_path, workers=0, until=2)
    (only,) = checkpoints(tmp_path).values()
    directory = tmp_path / "checkpoints" / only
    for name in ("state.pt", "rng-rank-0.pt"):
        assert torch.load(directory / name, weights_only=True)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    )
    pytorch.load_model_weights(directory, model)
