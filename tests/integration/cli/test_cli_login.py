"""Who is logged in, and who is asked for a password."""

from __future__ import annotations

from resolute.wire.rest.passwords import hash_password
from support.cli_master import FakeMaster
from support.cli_messages import PASSWORD
from support.cli_shell import Shell


def test_login_is_remembered(det: Shell, master: FakeMaster) -> None:
    assert det.ok("user", "login", "determined") == "Logged in as user 'determined'\n"
    del det.environ["DET_USER"], det.environ["DET_PASS"]
    assert det.ok("user", "whoami") == "You are logged in as user 'determined'\n"
    assert len(master.asked("POST", "/api/v1/auth/login")) == 1
    assert master.asked("POST", "/api/v1/auth/login")[0].body["isHashed"] is True


def test_logout_forgets(det: Shell, master: FakeMaster) -> None:
    det.ok("user", "login", "determined")
    assert det.ok("user", "logout") == "Logged out: determined\n"
    assert master.tokens == {}
    del det.environ["DET_USER"], det.environ["DET_PASS"]
    assert det("user", "whoami") == 1
    assert "user login" in det.err
    assert det.ok("user", "logout") == "No user was logged in\n"


def test_a_wrong_password_is_said_to_be_wrong(det: Shell) -> None:
    det.environ["DET_PASS"] = "nonsense"
    assert det("user", "login", "determined") == 1
    assert det.err == "Failed to log in: the master does not accept this password for user 'determined'; try another\n"
    assert det("e", "list") == 1
    assert det.err.startswith("Failed to list experiments: invalid credentials")


def test_an_ended_token_is_dropped_and_replaced(det: Shell, master: FakeMaster) -> None:
    det.ok("user", "whoami")
    master.tokens.clear()
    det.ok("user", "whoami")
    assert len(master.asked("POST", "/api/v1/auth/login")) == 2


def test_nobody_is_asked_where_there_is_no_terminal(det: Shell) -> None:
    del det.environ["DET_PASS"]
    assert det("-u", "determined", "e", "list") == 1
    assert "there is no terminal for a prompt" in det.err
    assert det("user", "login", "determined") == 1
    assert det.err.endswith("there is no terminal for a prompt; set DET_USER and DET_PASS\n"), (
        "no advice to do the same"
    )


def test_the_flag_names_the_user(det: Shell, master: FakeMaster) -> None:
    master.passwords["ada"] = hash_password("Other1234")
    det.environ.update(DET_USER="ada", DET_PASS="Other1234")
    det.ok("user", "login", "ada")
    det.environ.update(DET_USER="determined", DET_PASS=PASSWORD)
    assert det.ok("-u", "ada", "user", "whoami") == "You are logged in as user 'ada'\n"
    assert det.ok("user", "whoami") == "You are logged in as user 'determined'\n"
