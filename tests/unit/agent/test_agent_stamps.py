"""Times of output: any offset in order, from a file that grows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_agent.runtimes.stamps import StampReader
from resolute_agent.supervisor import STAMP


def written(path: Path, records: list[tuple[float, int]]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(STAMP.pack(*record) for record in records))


def test_a_reader_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "stdout.times"
    reader = StampReader(path)
    assert reader.at(0) is None
    written(path, [(100.0, 0), (101.0, 10)])
    assert [reader.at(offset) for offset in (0, 9, 10, 15)] == [
        datetime.fromtimestamp(seconds, UTC) for seconds in (100, 100, 101, 101)
    ]
    written(path, [(102.0, 20)])
    assert reader.at(20) == datetime.fromtimestamp(102, UTC)


def test_output_before_the_first_record_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "stderr.times"
    written(path, [(100.0, 50)])
    reader = StampReader(path)
    assert reader.at(0) is None
    assert reader.at(50) == datetime.fromtimestamp(100, UTC)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=700), st.data())
def test_any_start_gives_the_record_that_covers_it(steps: list[int], data: st.DataObject) -> None:
    import tempfile

    offsets = [0]
    for step in steps:
        offsets.append(offsets[-1] + step)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdout.times"
        written(path, [(float(index), offset) for index, offset in enumerate(offsets)])
        asked = sorted(data.draw(st.lists(st.integers(0, offsets[-1] + 5), min_size=1, max_size=20)))
        reader = StampReader(path)
        for offset in asked:
            covering = max(index for index, start in enumerate(offsets) if start <= offset)
            assert reader.at(offset) == datetime.fromtimestamp(covering, UTC)
