"""Below an open directory no path leads out: not by links, not by swapping names, not by what is no file."""

from __future__ import annotations

import itertools
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from resolute.beneath import MAX_DEPTH, Beneath, LeadsOut, TooDeep, parts_of, readable
from resolute.errors import InvalidInput
from resolute.storage.directory import DirectoryStorage
from resolute.storage.manifest import CorruptCheckpoint, Manifest, Verify, describe_file, verify

SECRET = b"what only the master may read"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_bytes(SECRET)
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    (directory / "a" / "b").mkdir(parents=True)
    (directory / "a" / "b" / "file").write_bytes(b"inside")
    return directory


def test_files_are_opened_listed_and_removed_below(root: Path) -> None:
    with Beneath.at(root) as below:
        with below.open_file("a/b/file") as file:
            assert file.read() == b"inside"
        assert [(found.path, found.is_file) for found in below.walk()] == [
            ("a", False),
            ("a/b", False),
            ("a/b/file", True),
        ]
        below.remove_if_empty("a/b")
        below.unlink("a/b/file")
        below.unlink("a/b/file")
        below.remove_if_empty("a/b")
        below.remove_if_empty("a/b")
        assert below.directory("a").names() == []
        below.remove_tree("a")
        below.remove_tree("a")
        assert below.names() == []


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../../outside/secret", "a\0b", ""])
def test_a_path_that_does_not_stay_inside_is_refused_before_anything_is_opened(root: Path, path: str) -> None:
    with Beneath.at(root) as below, pytest.raises(InvalidInput):
        below.open_file(path)
    if path:
        with pytest.raises(InvalidInput, match="does not stay inside"):
            parts_of(path)


def test_a_link_is_followed_at_no_component(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "a" / "up").symlink_to(Path("../../outside"))
    (root / "a" / "file").symlink_to(outside / "secret")
    with Beneath.at(root) as below:
        for path in ("link/secret", "a/up/secret", "a/file"):
            with pytest.raises(LeadsOut, match="is a symbolic link"):
                below.open_file(path)
        assert not [found.path for found in below.walk() if "secret" in found.path]
        for path in ("link", "a/up", "a/file"):
            assert stat.S_ISLNK(below.status(path).st_mode)
            below.remove_tree(path)
            assert not (root / path).is_symlink()
        with pytest.raises(FileNotFoundError):
            below.directory("link")
    assert (outside / "secret").read_bytes() == SECRET


def test_nothing_outside_is_removed_through_a_link(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "a" / "b" / "up").symlink_to(outside)
    with Beneath.at(root) as below:
        for remove in (below.unlink, below.remove_tree, below.remove_if_empty):
            with pytest.raises(LeadsOut):
                remove("link/secret")
        below.remove_tree("a")
    assert (outside / "secret").read_bytes() == SECRET


def fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(("make", "named"), [(fifo, "a FIFO"), (a_socket, "a socket")])
@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], named: str
) -> None:
    monkeypatch.chdir(root)
    make(Path("odd"))
    with Beneath.at(root) as below:
        with pytest.raises(LeadsOut, match=f"odd is {named}, not a file; it is not opened"):
            below.open_file("odd")
        below.remove_tree("odd")
    assert not (root / "odd").exists()


@pytest.mark.needs("root")  # only root makes devices and gives files away
def test_a_device_and_a_file_of_another_owner_are_refused(root: Path) -> None:
    os.mknod(root / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.chown(root / "a", 12345, 12345)
    (root / "a" / "of-root").write_bytes(SECRET)
    os.link(root / "a" / "of-root", root / "a" / "second-name")
    with Beneath.at(root, one_owner=True) as below:
        with pytest.raises(LeadsOut, match="is a device"):
            below.open_file("device")
        for name in ("a/of-root", "a/second-name"):
            with pytest.raises(LeadsOut, match="belongs to another user than its directory"):
                below.open_file(name)
        with below.open_file("a/b/file") as file:
            assert file.read() == b"inside"
        with below.directory("a") as directory:
            directory.replace_file("new", b"of the owner")
        with below.open_file("a/new") as file:
            assert file.read() == b"of the owner"


# ------------------------------------------------------------------------------------------------------------- swaps


def test_a_directory_that_is_swapped_while_it_is_walked_does_not_lead_out(root: Path, outside: Path) -> None:
    seen = []
    with Beneath.at(root) as below:
        for found in below.walk():
            seen.append(found.path)
            if found.path == "a":
                (root / "a").rename(root / "moved")
                (root / "a").symlink_to(outside)
    assert seen == ["a", "a/b", "a/b/file"]


def test_a_file_that_is_swapped_after_it_was_listed_is_not_opened(root: Path, outside: Path) -> None:
    with Beneath.at(root) as below:
        for found in below.walk():
            if found.is_file:
                (root / found.path).unlink()
                (root / found.path).symlink_to(outside / "secret")
                with pytest.raises(LeadsOut):
                    found.open()


def test_a_name_that_changes_all_the_time_never_gives_what_is_outside(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    (root / "real").mkdir()
    (root / "real" / "secret").write_bytes(b"inside")
    stop = threading.Event()

    def swap() -> None:
        for way in itertools.cycle((("real", "x"), ("link", "real"), ("real", "link"), ("x", "real"))):
            if stop.is_set() and way == ("real", "x"):
                return
            os.rename(root / way[0], root / way[1])

    swapping = threading.Thread(target=swap)
    swapping.start()
    found: dict[str, int] = {}
    try:
        with Beneath.at(root) as below:
            while min(found.get("inside", 0), found.get("refused", 0)) < 200:
                try:
                    with below.open_file("real/secret") as file:
                        text = file.read().decode()
                except FileNotFoundError:
                    text = "gone"
                except LeadsOut:
                    text = "refused"
                found[text] = found.get(text, 0) + 1
    finally:
        stop.set()
        swapping.join()
    assert set(found) <= {"inside", "refused", "gone"}


def test_directories_deeper_than_may_be_are_refused_in_words(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 1):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    with Beneath.at(tmp_path) as below:
        with pytest.raises(TooDeep, match=f"more than {MAX_DEPTH} nested directories"):
            list(below.walk())
        with pytest.raises(TooDeep):
            below.remove_tree("d")
        os.rmdir("d", dir_fd=at) if "d" in os.listdir(at) else None
        os.close(at)
        with below.directory("/".join("d" * (MAX_DEPTH - 1))) as last:
            os.rmdir("d/d", dir_fd=last.fileno())
        assert len(list(below.walk())) == MAX_DEPTH
        below.remove_tree("d")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_utf_8_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).touch()
    with Beneath.at(tmp_path) as below:
        assert [readable(found.path) for found in below.walk()] == ["a\\xff"]


# ---------------------------------------------------------------------------------------------- the directory storage


def stored(root: Path, uuid: str) -> Manifest:
    storage = DirectoryStorage(root)
    staged = storage.stage(uuid, "0")
    (staged / "weights").write_bytes(b"w")
    files = {"weights": describe_file(staged / "weights")}
    manifest = Manifest(
        uuid=uuid, steps_completed=1, trial_id=1, trial_run_id=1, world_size=1, created="", parent=None, files=files
    )
    storage.put(uuid, "0", ["weights"])
    storage.commit(uuid, manifest.to_bytes())
    return manifest


def test_a_checkpoint_that_is_a_link_is_not_read_listed_or_followed_when_it_is_removed(
    root: Path, outside: Path
) -> None:
    stored(outside, "c")
    (root / "c").symlink_to(outside / "c")
    (root / "d.partial").symlink_to(outside / "c")
    storage = DirectoryStorage(root)
    with pytest.raises(LeadsOut, match="is a symbolic link"):
        storage.manifest("c")
    with pytest.raises(LeadsOut), storage.restore("c"):
        raise AssertionError("restored")
    assert storage.list() == ()
    storage.abort("d")
    storage.delete("c")
    assert not (root / "c").is_symlink() and not (root / "d.partial").is_symlink()
    assert (outside / "c" / "weights").read_bytes() == b"w"
    assert DirectoryStorage(outside).list() == ("c",)


@pytest.mark.parametrize("how", [Verify.SIZES, Verify.FULL])
def test_a_file_that_was_exchanged_for_a_link_is_damage(root: Path, outside: Path, how: Verify) -> None:
    manifest = stored(root, "c")
    (outside / "secret").write_bytes(b"w")
    (root / "c" / "weights").unlink()
    (root / "c" / "weights").symlink_to(outside / "secret")
    with pytest.raises(CorruptCheckpoint, match="weights is not a file; links in a storage are not followed"):
        verify(manifest, root / "c", how)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"version": 1, "uuid": "c", "steps_completed": Infinity}',
        b'{"version": 1, "uuid": "c", "steps_completed": 1, "trial_id": 1, "trial_run_id": 1, "world_size": 1,'
        b' "created": "", "parent": null, "files": {"../x": {"size": 1, "sha256": ""}}}',
    ],
)
def test_a_manifest_that_was_made_to_do_harm_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        Manifest.from_bytes("c", data)


def test_a_manifest_without_end_is_not_read_into_memory(root: Path) -> None:
    stored(root, "c")
    os.truncate(root / "c" / "manifest.json", 1 << 40)
    with pytest.raises(LeadsOut, match="it is no manifest"):
        DirectoryStorage(root).manifest("c")


@pytest.mark.needs("root")
def test_who_may_not_give_files_away_writes_over_them(tmp_path: Path) -> None:
    """A master that is not root, in a storage whose files belong to tasks and to its own group."""
    checkpoint, manifest = tmp_path / "uuid", tmp_path / "uuid" / "manifest.json"
    checkpoint.mkdir()
    manifest.write_bytes(b"a long manifest of the task")
    for path, mode in ((checkpoint, 0o2775), (manifest, 0o664)):
        os.chown(path, 5000, 6000)
        path.chmod(mode)
    with Beneath.at(checkpoint, one_owner=True) as directory:
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([6000])
                os.setresgid(6000, 6000, 6000)
                os.setresuid(7000, 7000, 7000)
                directory.replace_file(manifest.name, b"a new one")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with directory.open_file(manifest.name) as file:
            assert file.read() == b"a new one"
    assert [path.name for path in checkpoint.iterdir()] == [manifest.name]
    assert (manifest.stat().st_uid, manifest.stat().st_gid) == (5000, 6000)
