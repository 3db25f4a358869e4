"""Code that a browser sends and shows."""

from __future__ import annotations

import io
import tarfile

import pytest

from resolute.errors import InvalidInput
from resolute_web.model_code import entries_of, file_of, marked
from resolute_web.uploads import Upload, code_of


def an_upload(path: str, content: bytes = b"x") -> Upload:
    return Upload(field="code", path=path, content=content)


def an_archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_folder_is_taken_below_its_root_and_without_what_is_ignored() -> None:
    sent = [
        an_upload("model/train.py"),
        an_upload("model/src/net.py"),
        an_upload("model/src/__pycache__/net.cpython-313.pyc"),
        an_upload("model/.git/HEAD"),
        an_upload("model/data.bin"),
        an_upload("model/.detignore", b"*.bin\n"),
    ]
    assert [file.path for file in code_of(sent, now_s=5)] == ["src/net.py", "train.py"]


def test_single_files_keep_their_names() -> None:
    assert [file.path for file in code_of([an_upload("a.py"), an_upload("b.py")], now_s=5)] == ["a.py", "b.py"]
    assert code_of([], now_s=5) == ()


def test_an_ignore_file_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"\.detignore: is no UTF-8 text"):
        code_of([an_upload("m/.detignore", b"\xff\xfe"), an_upload("m/a.py")], now_s=5)


def test_tokens_are_marked_and_everything_is_escaped() -> None:
    (first, second) = marked("a.py", "def f(): return '<script>'\n# & more")
    assert '<b class="keyword">def</b>' in first and '<b class="defined">f</b>' in first
    assert "&lt;script&gt;" in first and "<script>" not in first
    assert second == '<b class="comment"># &amp; more</b>'
    assert marked("unknown.zzz", "<b>") == ["&lt;b&gt;"]


def test_an_archive_is_listed_and_read() -> None:
    archive = an_archive(**{"b.py": b"x = 1\n", "a/c.py": b"", "z.bin": b"\0\1"})
    assert [(each.path, each.depth) for each in entries_of(archive)] == [("a/c.py", 1), ("b.py", 0), ("z.bin", 0)]
    shown = file_of(archive, "b.py")
    assert shown is not None and len(shown.lines) == 1 and not shown.binary
    binary = file_of(archive, "z.bin")
    assert binary is not None and binary.binary and binary.lines == ()
    assert file_of(archive, "../b.py") is None
