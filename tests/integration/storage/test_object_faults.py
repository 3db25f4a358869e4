"""Object stores that are slow, throttle, fail, lose answers or are away in the middle of a save and of a restore: real clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from resolute.errors import AlreadyExists
from resolute.storage import CheckpointStorage, StorageAway, StorageUnavailable, storage_from_config
from resolute.storage.retries import Retries
from support.faulty_front import Fault, FaultyFront, faulty_front
from support.object_stores import STORES, ObjectStore, a_place

KINDS = ["s3", "gcs", pytest.param("azure", marks=pytest.mark.needs("azurite"))]
FILES = {"weights": b"w" * 300_000, "deep/optimizer": b"o" * 1000, "state": b"{}"}
_number = count()


@dataclass
class Pauses:
    """Time that passes only while somebody waits."""

    now: float = 0.0
    waited: list[float] = field(default_factory=list)
    after: dict[float, Callable[[], None]] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds
        for moment in [moment for moment in self.after if moment <= self.now]:
            self.after.pop(moment)()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def stores() -> Iterator[Callable[[str], ObjectStore]]:
    with STORES.session() as started:
        yield started


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture(params=KINDS)
def front(
    request: pytest.FixtureRequest, stores: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FaultyFront, ObjectStore]]:
    place = a_place(stores(str(request.param)), f"faults-{next(_number)}")
    parts = urlsplit(place.address)
    with faulty_front(f"{parts.scheme}://{parts.netloc}") as made:
        config = dict(place.config)
        environ = dict(place.environ)
        if "endpoint_url" in config:
            config["endpoint_url"] = made.address
        elif "connection_string" in config:
            config["connection_string"] = config["connection_string"].replace(made.target, made.address)
        else:
            environ["STORAGE_EMULATOR_HOST"] = made.address
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield made, replace(place, config=config)


@pytest.fixture
def storage(
    front: tuple[FaultyFront, ObjectStore], pauses: Pauses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CheckpointStorage:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    retries = Retries(sleep=pauses.sleep, monotonic=pauses.monotonic)
    return storage_from_config(front[1].config, shared_fs_mount=None, retries=retries)


def save(storage: CheckpointStorage, uuid: str) -> None:
    staged = storage.stage(uuid, "rank-0")
    for name, content in FILES.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(content)
    storage.put(uuid, "rank-0", FILES)
    storage.commit(uuid, b'{"a": "manifest"}')


def restored(storage: CheckpointStorage, uuid: str) -> dict[str, bytes]:
    with storage.restore(uuid) as path:
        return {name: (path / name).read_bytes() for name in FILES}


IN_THE_MIDDLE = 2
"""Requests that are answered before: the mark and a file of a save, the manifest and the listing of a restore."""


def after(requests: int) -> Callable[[str, str], bool]:
    """Says of each request whether so many came before it."""
    seen = count()
    return lambda method, path: next(seen) >= requests


FAULTS = {
    "throttles": Fault(status=503, body=b"<Error><Code>SlowDown</Code><Message>less</Message></Error>"),
    "fails": Fault(status=500, body=b"<Error><Code>InternalError</Code><Message>oops</Message></Error>"),
    "is too busy": Fault(status=429, body=b"<Error><Code>SlowDown</Code><Message>less</Message></Error>"),
    "is away": Fault(away=True),
    "loses answers": Fault(lost=True),
    "is slow": Fault(delay_s=0.05),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_save_and_a_restore_live_through_it(
    front: tuple[FaultyFront, ObjectStore], storage: CheckpointStorage, name: str
) -> None:
    front[0].wanted = after(IN_THE_MIDDLE)
    front[0].faults.extend([FAULTS[name]] * 6)
    save(storage, "c1")
    assert not front[0].faults
    front[0].wanted = after(IN_THE_MIDDLE)
    front[0].faults.extend([FAULTS[name]] * 3)
    assert restored(storage, "c1") == FILES
    assert not front[0].faults
    assert storage.list() == ("c1",)


def test_a_store_that_is_away_for_two_minutes_is_waited_for(
    front: tuple[FaultyFront, ObjectStore], storage: CheckpointStorage, pauses: Pauses
) -> None:
    def come_back() -> None:
        front[0].always = None

    front[0].wanted, front[0].always = after(IN_THE_MIDDLE), Fault(away=True)
    pauses.after[120.0] = come_back
    save(storage, "c1")
    assert 120.0 <= pauses.now < 300.0
    begun = pauses.now
    front[0].wanted, front[0].always = after(IN_THE_MIDDLE), Fault(away=True)
    pauses.after[begun + 120.0] = come_back
    assert restored(storage, "c1") == FILES
    assert 120.0 <= pauses.now - begun < 300.0


def test_a_store_that_stays_away_is_named(front: tuple[FaultyFront, ObjectStore], pauses: Pauses) -> None:
    retries = Retries(total_s=30.0, sleep=pauses.sleep, monotonic=pauses.monotonic)
    storage = storage_from_config(front[1].config, shared_fs_mount=None, retries=retries)
    front[0].always = Fault(away=True)
    with pytest.raises(StorageAway, match="does not answer"):
        storage.check_writable()
    assert 10.0 < pauses.now <= 30.0


def test_a_commit_whose_answer_was_lost_is_one_commit(
    front: tuple[FaultyFront, ObjectStore], storage: CheckpointStorage
) -> None:
    front[0].wanted = lambda method, path: method in ("PUT", "POST") and "manifest.json" in path
    front[0].faults.extend([Fault(lost=True)] * 3)
    save(storage, "c1")
    assert restored(storage, "c1") == FILES
    with pytest.raises(AlreadyExists):
        storage.commit("c1", b'{"another": "manifest"}')


# ---------------------------------------------------------------------------------------------------------- refusals

DENIED = {
    "s3": b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>",
    "gcs": b'{"error": {"code": 403, "message": "no storage.objects.create access"}}',
    "azure": b"<Error><Code>AuthorizationPermissionMismatch</Code><Message>no</Message></Error>",
}
GRANT = {"s3": "s3:PutObject", "gcs": "roles/storage.objectUser", "azure": "Storage Blob Data Contributor"}


def test_a_denied_write_names_the_bucket_the_identity_and_what_to_grant(
    front: tuple[FaultyFront, ObjectStore], storage: CheckpointStorage, pauses: Pauses
) -> None:
    kind = str(front[1].config["type"])
    front[0].always = Fault(status=403, body=DENIED[kind])
    with pytest.raises(StorageUnavailable) as error:
        storage.check_writable()
    text = str(error.value)
    who = {"s3": "access key test", "gcs": "this machine's identity", "azure": "the account devstoreaccount1"}[kind]
    bucket = str(front[1].config.get("bucket") or front[1].config["container"])
    assert not isinstance(error.value, StorageAway) and pauses.waited == []
    assert bucket in text and who in text and GRANT[kind] in text


def test_a_bucket_that_is_not_there_is_named(
    front: tuple[FaultyFront, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "container" if front[1].config["type"] == "azure" else "bucket"
    storage = storage_from_config({**front[1].config, key: "nowhere"}, shared_fs_mount=None)
    with pytest.raises(StorageUnavailable, match=rf"nowhere.* no such {key}.*Create it"):
        storage.check_writable()


@pytest.mark.parametrize(
    ("config", "package"),
    [
        ({"type": "s3", "bucket": "b"}, "boto3"),
        ({"type": "gcs", "bucket": "b"}, "google-cloud-storage"),
        ({"type": "azure", "container": "c", "account_url": "https://a"}, "azure-storage-blob"),
    ],
)
def test_a_missing_client_is_named(config: dict[str, str], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [*sys.modules]:
        if name.partition(".")[0] in ("boto3",) or name.startswith(("google.cloud.storage", "azure.storage")):
            monkeypatch.setitem(sys.modules, name, None)
    for name in ("boto3", "google.cloud.storage", "azure.storage.blob"):
        monkeypatch.setitem(sys.modules, name, None)
    import google.cloud

    monkeypatch.delattr(google.cloud, "storage", raising=False)
    with pytest.raises(StorageUnavailable, match=rf"{package} is missing here.*pip install"):
        storage_from_config(config, shared_fs_mount=None)


def test_without_an_identity_it_is_said_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    storage = storage_from_config({"type": "s3", "bucket": "b"}, shared_fs_mount=None)
    with pytest.raises(StorageUnavailable, match=r"no identity there.*role"):
        storage.check_writable()
