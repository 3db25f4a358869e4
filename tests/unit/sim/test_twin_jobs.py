"""The trace of jobs: what is read, and what is said of a row that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute_sim.twin.jobs import between, read_jobs
from resolute_sim.twin.synthetic import DAYS, JOBS, synthetic_jobs

HEAD = "job_id,submit_s,duration_s,slots,group\n"


def _file(directory: Path, text: str) -> Path:
    path = directory / "jobs.csv"
    path.write_text(text)
    return path


def test_rows_are_read_in_the_order_of_submission(tmp_path: Path) -> None:
    jobs = read_jobs(_file(tmp_path, HEAD + "late,20.5,7,2,a\nearly,3,0,1,b\n"))
    assert [(job.job_id, job.submit_s, job.duration_s, job.slots, job.group) for job in jobs] == [
        ("early", 3.0, 0.0, 1, "b"),
        ("late", 20.5, 7.0, 2, "a"),
    ]
    assert jobs[0].priority is None and jobs[0].preemptible and jobs[0].single_node is None


def test_optional_columns_are_taken_where_they_are_given(tmp_path: Path) -> None:
    head = HEAD.strip() + ",priority,single_node,preemptible\n"
    (first, second) = read_jobs(_file(tmp_path, head + "1,0,5,4,a,7,true,false\n2,1,5,4,a,,,\n"))
    assert (first.priority, first.single_node, first.preemptible) == (7, True, False)
    assert (second.priority, second.single_node, second.preemptible) == (None, None, True)


def test_a_job_may_have_a_deadline_a_workspace_and_a_limit(tmp_path: Path) -> None:
    head = HEAD.strip() + ",weight,deadline_s,workspace,max_cost\n"
    (first, second) = read_jobs(_file(tmp_path, head + "1,10,5,4,a,2.5,600,w,3.5\n2,20,5,4,a,,,,\n"))
    assert (first.weight, first.deadline_s, first.workspace, first.max_cost) == (2.5, 600.0, "w", 3.5)
    assert (second.weight, second.deadline_s, second.workspace, second.max_cost) == (1.0, None, "", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no column job_id"),
        ("job_id,submit_s,duration_s,slots\n", "there is no column group"),
        (HEAD.strip() + ",slot\n", "the column slot is not known; did you mean 'slots'"),
        (HEAD, "has no rows"),
        (HEAD + "1,soon,5,1,a\n", "row 2, column submit_s: must be a number that is at least 0, and is 'soon'"),
        (
            HEAD + "1,0,5,1,a\n2,0,-5,1,a\n",
            "row 3, column duration_s: must be a number that is at least 0, and is '-5'",
        ),
        (HEAD + "1,0,nan,1,a\n", "column duration_s"),
        (HEAD + "1,0,5,0,a\n", "column slots: must be a whole number, 1 to 100000, and is '0'"),
        (HEAD + "1,0,5,1.5,a\n", "column slots"),
        (HEAD + ",0,5,1,a\n", "column job_id: must not be empty"),
        (
            HEAD + "1,0,5,1,a\n1,0,5,1,a\n",
            "row 3, column job_id: must be another one in each row; row 2 has it too, and is '1'",
        ),
        (HEAD + "1,0,5,1,a,b\n", "row 2: the value 'b' has no column; remove it, or name"),
        (HEAD.strip() + ",priority\n1,0,5,1,a,100\n", "column priority: must be a whole number, 1 to 99, and is '100'"),
        (
            HEAD.strip() + ",max_slots\n1,0,5,2,a,2\n2,0,5,2,a,1\n",
            "row 3, column max_slots: must be at least the job's slots, 2, or it never starts, and is '1'",
        ),
        (
            HEAD.strip() + ",deadline_s\n1,10,5,1,a,10\n",
            "row 2, column deadline_s: must be after the submission, second 10 of the trace, and is '10'",
        ),
        (HEAD.strip() + ",deadline_s\n1,0,5,1,a,soon\n", "row 2, column deadline_s: must be a number"),
        (
            HEAD.strip() + ",max_cost\n1,0,5,1,a,0\n",
            "row 2, column max_cost: must be above 0; leave it empty for no limit, and is '0'",
        ),
        (HEAD.strip() + ",max_cost\n1,0,5,1,a,inf\n", "row 2, column max_cost: must be a number"),
        (
            HEAD + "1,2026-11-26T10:00,5,1,a\n",
            "column submit_s: must be seconds from the trace's beginning, not a date",
        ),
        (HEAD + "1,11/26/2026,5,1,a\n", "column submit_s: must be seconds from the trace's beginning, not a date"),
        (HEAD + "1,09:30,5,1,a\n", "column submit_s: must be seconds from the trace's beginning, not a date"),
        (
            HEAD + "1,1764150000,5,1,a\n",
            "row 2, column submit_s: must be seconds from the trace's beginning, ten years",
        ),
        (HEAD + "1,0,1764150000,1,a\n", "row 2, column duration_s: must be seconds of run time, a year of them"),
        (HEAD + "1,0,5,1000000,a\n", "column slots: must be a whole number, 1 to 100000, and is '1000000'"),
        (
            HEAD.replace(",", "\t") + "1\t0\t5\t1\ta\n",
            "row 1: its values are divided by '\\t', and must be divided by commas",
        ),
        (HEAD.strip() + ",\n1,0,5,1,a,b\n", "row 2: the value 'b' has no column"),
        (HEAD.strip() + ",slots\n1,0,5,1,a,2\n", "row 1: there are two columns slots; remove one"),
        (
            HEAD.replace("job_id", "id"),
            "there is no column job_id; its columns are id, submit_s, duration_s, slots, group",
        ),
        (HEAD + '1,"1,500",5,1,a\n', "written with a decimal point and without marks of thousands, and is '1,500'"),
        (HEAD.replace(",", ";") + "1;1.500;5;1;a\n", "without marks of thousands, and is '1.500'"),
        (HEAD + "1,26. Nov. 2026,5,1,a\n", "column submit_s: must be seconds from the trace's beginning, not a date"),
        (HEAD + "1,0,1:30:00,1,a\n", "column duration_s: must be seconds of run time, not hours and minutes"),
        (HEAD + "\n1,0,5\n", "row 3, column slots: must be a whole number, 1 to 100000, and is ''"),
        (HEAD.strip() + ",single_node\n1,0,5,1,a,maybe\n", "column single_node: must be true or false, and is 'maybe'"),
    ],
)
def test_a_wrong_file_is_refused_with_row_column_and_value(tmp_path: Path, text: str, said: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InvalidInput) as refused:
        read_jobs(path)
    assert said in str(refused.value) and str(path) in str(refused.value)


def test_a_file_that_excel_has_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes((HEAD + "\u00e4,3,5,1,b\n").replace("\n", "\r\n").encode("utf-8-sig"))
    (job,) = read_jobs(path)
    assert (job.job_id, job.submit_s, job.group) == ("\u00e4", 3.0, "b")
    path.write_bytes((HEAD + "\u00e4,3,5,1,b\n").encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"is not UTF-8 text.*in Excel: save as 'CSV UTF-8"):
        read_jobs(path)


@pytest.mark.parametrize(
    "text",
    [
        'job_id;submit_s;duration_s;slots;group;priority;\r\n"1";0,5;60;2,0;a;;\r\n;;;;;;\r\n\r\n',
        "sep=;\r\nJob_ID;Submit_s ;Duration_s;Slots;Group\r\n1;0,5;60;2;a\r\n",
        "Job_ID, Submit_s, Duration_s, Slots, Group, Priority\r\n1, 0.5, 60, 2.0, a\r\n,,,,,\r\n",
    ],
    ids=["a decimal comma and empty cells", "a line for Excel", "spaces and capitals"],
)
def test_a_spreadsheet_may_write_the_same_trace_in_its_own_way(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(text.encode("utf-8-sig"))
    (job,) = read_jobs(path)
    assert (job.job_id, job.submit_s, job.duration_s, job.slots, job.group) == ("1", 0.5, 60.0, 2, "a")
    assert job.priority is None


def test_times_count_from_the_first_day_that_is_taken(tmp_path: Path) -> None:
    head = HEAD.strip() + ",deadline_s\n"
    rows = "before,86399,5,1,a,\nfirst,86400,5,1,a,90000\nlast,172799,5,1,a,\nafter,172800,5,1,a,\n"
    found = between(read_jobs(_file(tmp_path, head + rows)), 1.0, 2.0)
    assert [(job.job_id, job.submit_s, job.deadline_s) for job in found] == [
        ("first", 0.0, 3600.0),
        ("last", 86_399.0, None),
    ]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_jobs(tmp_path / "none.csv")


def test_the_synthetic_trace_is_a_function_of_its_seed_and_as_large_as_promised() -> None:
    jobs = synthetic_jobs(3)
    assert jobs == synthetic_jobs(3) and jobs != synthetic_jobs(4)
    assert len(jobs) == JOBS and jobs[-1].submit_s < DAYS * 86_400
    shared = sum(job.slots > 1 for job in jobs) / len(jobs)
    assert 0.11 < shared < 0.18 and {12, 24} <= {job.slots for job in jobs}
    assert all(job.duration_s > 0 for job in jobs)
    assert len(between(jobs, 10, 20)) < len(jobs)
