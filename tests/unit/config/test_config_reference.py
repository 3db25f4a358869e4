"""The reference of keys in the documentation is what the models say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from resolute.config import AgentConfig, ExperimentConfig, MasterConfig
from resolute.config.layers import leaves_of
from resolute.config.reference import rows_of, sections, updated

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_document_is_current() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for name in sections():
        assert f"<!-- begin {name} -->" in document
    assert updated(document) == document, "run: python -m resolute.config.reference docs/configuration.md"


@pytest.mark.parametrize("model", [ExperimentConfig, MasterConfig, AgentConfig])
def test_every_key_is_described(model: type[BaseModel]) -> None:
    rows = rows_of(model)
    assert len(rows) > 30
    assert [row.path for row in rows if not row.description and not row.path.endswith((".type", ".name"))] == []


@pytest.mark.parametrize("model", [ExperimentConfig, MasterConfig, AgentConfig])
def test_editors_get_a_schema(model: type[BaseModel]) -> None:
    assert model.model_json_schema()["additionalProperties"] is False


@pytest.mark.parametrize("model", [MasterConfig, AgentConfig])
def test_a_variable_means_one_key(model: type[BaseModel]) -> None:
    paths: dict[str, tuple[str, ...]] = {}
    for setting in leaves_of(model):
        assert paths.setdefault(setting.name, setting.path) == setting.path
    assert len(paths) > 30
