"""No secret is shown: by reflection, in every place that the models mark, and in texts as they were submitted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from resolute.config import (
    AgentConfig,
    ExperimentConfig,
    InvalidConfig,
    MasterConfig,
    SecretNames,
    load_yaml,
    mask_experiment,
    mask_experiment_text,
    parse_agent_config,
    parse_experiment,
    parse_master_config,
    parse_template,
)
from resolute.config.base import MASK, SecretMark
from resolute.config.errors import HOLD_SECRETS, is_secret_key, quoted
from resolute.config.layers import leaves_of
from resolute.config.masking import Place, masked_values, secrets_of, without_url_password
from resolute.core.shareable import without_secrets
from support.config import an_experiment
from support.seeded_secrets import WORD, SecretSeeder, paths_of

MODELS = [ExperimentConfig, MasterConfig, AgentConfig]

NOT_SECRET = {
    "security.tls.key": "a path of a file",
    "security.seal.key_file": "a path of a file",
    "security.seal.key_command": "a command, which is to print the key and not to contain it",
    "join_token_file": "a path of a file",
    "tls_key": "a path of a file",
    "tls_cert": "a path of a file",
    "security.token.default_lifespan_days": "a number of days",
    "security.token.max_lifespan_days": "a number of days",
    "security.secrets.environment_patterns": "names",
    "security.allow_blank_password": "true or false",
}
NEVER_READ = ("data_layer", "agent_label", "agent_reattach_enabled")
"""Keys that are accepted and forgotten: no error is about them, and no complete configuration has them."""


@pytest.mark.parametrize("model", MODELS)
def test_every_place_of_a_secret_is_masked(model: type[BaseModel]) -> None:
    seeder = SecretSeeder()
    seeded = seeder.block(secrets_of(model))
    assert len(seeder.seeded) > 2 and WORD in json.dumps(seeded)
    for leave_out in (True, False):
        shown = json.dumps(masked_values(seeded, secrets_of(model), leave_out=leave_out))
        assert {value: where for value, where in seeder.seeded.items() if value in shown} == {}
        assert MASK in shown
    if model is not AgentConfig:
        assert "PLAIN=is shown" in shown


@pytest.mark.parametrize("model", MODELS)
def test_a_key_that_sounds_secret_is_marked_or_said_to_be_none(model: type[BaseModel]) -> None:
    marked = {path.replace("[]", "").split("[")[0] for path, _ in paths_of(secrets_of(model))}
    sounding = {".".join(setting.path) for setting in leaves_of(model) if any(map(is_secret_key, setting.path))}
    unmarked = {path for path in sounding if not any(path == one or path.startswith(f"{one}.") for one in marked)}
    assert unmarked - NOT_SECRET.keys() == set()


@pytest.mark.parametrize("model", MODELS)
def test_an_error_quotes_no_value_of_a_secret(model: type[BaseModel]) -> None:
    """Neither at its own key nor, where a text stands instead of the block, at a block of experiments above it."""
    for path, mark in paths_of(secrets_of(model)):
        parts = tuple(path.replace("[]", "").split("."))
        if parts[-1] in NEVER_READ:
            continue
        if mark is SecretMark.DATA:
            assert quoted(WORD, (*parts, "secrets", "x")) == " (value hidden)"
            continue
        assert quoted(WORD, parts) == " (value hidden)", path
        if model is ExperimentConfig and len(parts) > 1 and parts[0] != "integrations":
            assert parts[0] in HOLD_SECRETS and quoted(f"x {WORD}", parts[:1]) == " (value hidden)", path


def test_storage_keys_are_left_out_and_the_rest_is_starred() -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "s", "endpoint_url": None}
    shown = mask_experiment({"checkpoint_storage": storage, "environment": {"registry_auth": {"password": "p"}}})
    assert shown["checkpoint_storage"] == {"type": "s3", "bucket": "b", "endpoint_url": None}
    assert shown["environment"]["registry_auth"] == {"password": MASK}
    assert mask_experiment({"checkpoint_storage": {"type": "s3", "access_key": None}})["checkpoint_storage"] == {
        "type": "s3",
        "access_key": None,
    }


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("HF_TOKEN", True), ("hf_token", True), ("TOKEN", True), ("GITHUB_TOKEN_2", True), ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_ACCESS_KEY_ID", True), ("WANDB_API_KEY", True), ("PGPASSWORD", True), ("MYSQL_PWD", True), ("SSH_PASSPHRASE", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True), ("OPENAI_APIKEY", True), ("SENTRY_DSN", True), ("DEPLOY_KEY1", True),
        ("PATH", False), ("PWD", False), ("TOKENIZERS_PARALLELISM", False), ("KEYBOARD", False), ("OMP_NUM_THREADS", False),
        ("MONKEY", False), ("LICENCE", False),
    ],
)  # fmt: skip
def test_names_of_variables_that_hold_secrets(name: str, hidden: bool) -> None:
    assert (name in SecretNames()) is hidden
    variables = {"environment": {"environment_variables": [f"{name}=x=y"]}}
    shown = mask_experiment(variables)["environment"]["environment_variables"]
    assert shown == [f"{name}={MASK}" if hidden else f"{name}=x=y"]


def test_an_operator_adds_patterns() -> None:
    config = parse_master_config(
        {
            "security": {"secrets": {"environment_patterns": ["licen[cs]e*", "MY_?"]}},
            "task_container_defaults": {"environment_variables": ["LICENCE=x", "my_a=x", "my_ab=shown", "A_TOKEN=x"]},
        }
    )
    shown = config.masked()["task_container_defaults"]["environment_variables"]["cpu"]
    assert shown == [f"LICENCE={MASK}", f"my_a={MASK}", "my_ab=shown", f"A_TOKEN={MASK}"]


def test_names_are_matched_in_a_time_that_grows_with_their_length() -> None:
    names = SecretNames(["*A*A*A*A*A*A*A*A*B"])
    started = time.process_time()
    assert "A" * 20_000 not in names
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:pw@h/db", f"postgres://u:{MASK}@h/db"),
        ("http://u:pw@a:1 https://v:pw@b", f"http://u:{MASK}@a:1 https://v:{MASK}@b"),
        ("https://ghp_abc@github.com/a", f"https://{MASK}@github.com/a"),
        ("ssh://git@github.com/a", "ssh://git@github.com/a"),
        ("a@b.c http://h/p", "a@b.c http://h/p"),
    ],
)
def test_passwords_of_addresses_are_masked_wherever_they_stand(text: str, shown: str) -> None:
    assert without_url_password(text) == shown
    assert mask_experiment({"description": text, "labels": [text]}) == {"description": shown, "labels": [shown]}


# --------------------------------------------------------------------------------------------------- submitted texts


def test_a_text_without_secrets_is_shown_as_it_is() -> None:
    text = "# my experiment\nname:   x   # spaces stay\nhyperparameters: {a: 1e-3}\n"
    assert mask_experiment_text(text) is text
    harmless = f"{text}environment:\n  environment_variables: [A=1]\n"
    assert mask_experiment_text(harmless) == harmless


def test_a_text_with_secrets_is_written_anew_without_them_and_without_comments() -> None:
    seeder = SecretSeeder()
    seeded = seeder.block(secrets_of(ExperimentConfig))
    values = {"a": "1e-3", "b": "no", "c": 1e-3, "d": "0123", "e": "ü", "f": None, "g": "2024-01-01"}
    text = f"# {WORD}\n" + yaml.safe_dump({"hyperparameters": values, **seeded}, allow_unicode=True)
    shown = mask_experiment_text(text)
    assert WORD not in shown and MASK in shown
    again = load_yaml(shown)
    assert again == mask_experiment(load_yaml(text)) and again["hyperparameters"] == load_yaml(text)["hyperparameters"]


@pytest.mark.parametrize(
    "text",
    [
        'data: {"\\x73ecrets": {a: SeededSecret}}',
        "data: &d {secrets: {a: SeededSecret}}\ndata_layer: *d",
        "data: {'secrets': {a: SeededSecret}}",
        "? data\n: {? secrets : {a: SeededSecret}}",
        "data: {secrets: SeededSecret}",
        "data: {secrets: [SeededSecret]}",
        "environment: {environment_variables: {gpu: [A_TOKEN=SeededSecret]}}",
        "environment: {environment_variables: {A_TOKEN: SeededSecret}}",
        "environment: {environment_variables: [SeededSecret]}",
        "data_layer: {type: s3, secret_key: SeededSecret}",
        "entrypoint: 'git clone https://me:SeededSecret@host/x'",
        "data: {secrets: {a: SeededSecret}",
    ],
)
def test_every_way_to_write_a_secret_is_seen(text: str) -> None:
    assert WORD not in mask_experiment_text(text)


def test_what_a_checkpoint_keeps_of_a_configuration_has_no_secret() -> None:
    seeder = SecretSeeder()
    seeded = seeder.block(secrets_of(ExperimentConfig))
    del seeded["data_layer"], seeded["resources"]
    kept = without_secrets({**seeded, "name": "x", "data": {**seeded["data"], "path": "/d"}})
    assert WORD not in json.dumps(kept)
    assert (kept["name"], kept["data"]) == ("x", {"path": "/d"})


# ------------------------------------------------------------------------------------------------- what was sent back


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"data": {"secrets": {"a": MASK}}},
            "<config>.data.secrets.a: is ********, which is shown instead of a secret",
        ),
        (
            {"environment": {"environment_variables": ["A=1", f"HF_TOKEN={MASK}"]}},
            "<config>.environment.environment_variables[1]: is ********, which is shown instead of a secret (variable HF_TOKEN)",
        ),
        (
            {"environment": {"registry_auth": {"password": MASK}}},
            "<config>.environment.registry_auth.password: is ****",
        ),
        ({"entrypoint": f"git clone https://me:{MASK}@host/x"}, "<config>.entrypoint: is ********"),
    ],
)
def test_a_mask_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_experiment(an_experiment(**changes))
    assert named in str(refused.value) and "; write the value, or remove the key" in str(refused.value)
    with pytest.raises(InvalidConfig):
        parse_template(changes)


def test_stars_that_are_no_mask_are_taken() -> None:
    assert parse_experiment(an_experiment(description=f"{MASK} mind the step {MASK}")).description


def test_masks_in_the_files_of_master_and_agent_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="initial_user_password"):
        parse_master_config({"security": {"initial_user_password": MASK}})
    with pytest.raises(InvalidConfig, match="join_token"):
        parse_agent_config({"master_host": "m", "join_token": MASK})


def test_a_place_is_found_through_unions_and_lists() -> None:
    paths = dict(paths_of(secrets_of(MasterConfig)))
    assert paths["resource_pools[].provider.startup_script"] is SecretMark.STARRED
    assert paths["checkpoint_storage.connection_string"] is SecretMark.LEFT_OUT
    assert paths["resource_pools[].task_container_defaults.environment_variables"] is SecretMark.VARIABLES
    assert Place().at("x") is None


@pytest.mark.parametrize("model", [ExperimentConfig, MasterConfig, AgentConfig])
def test_the_document_states_each_key_that_is_secret(model: type[BaseModel]) -> None:
    document = Path(__file__).resolve().parents[3] / "docs" / "security.md"
    section = document.read_text().split("## Secrets: what may be read by whom", 1)[1].split("\n## ", 1)[0]
    secret = [path for path, mark in paths_of(secrets_of(model)) if mark is not SecretMark.FREE]
    keys = {path.rpartition(".")[2].removesuffix("[]") for path in secret}
    words = {"environment_variables": "[environment variables]", "data": "`data.secrets`"}
    assert keys
    assert [key for key in sorted(keys) if words.get(key, f"{key}`") not in section] == []
