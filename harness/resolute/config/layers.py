"""A process's configuration from its layers: flags over environment over file. Defaults come with validation."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from resolute.config.errors import Location, suggestion
from resolute.config.yaml_text import load_yaml, load_yaml_value
from resolute.errors import InvalidInput

VARIABLE_PREFIX = "DET_"
FILE_VARIABLE = "DET_CONFIG_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key that may be set from outside the file: `is_text` values are taken as they are, others are YAML."""

    path: tuple[str, ...]
    is_text: bool

    @property
    def name(self) -> str:
        return "_".join(self.path).strip("_").lower()


def settings_of(model: type[BaseModel]) -> dict[str, Setting]:
    """All keys of a model that are not inside lists, by their joined name."""
    found: dict[str, Setting] = {}
    for setting in leaves_of(model):
        found.setdefault(setting.name, setting)
    return found


def leaves_of(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[Setting]:
    """The keys one by one. A key of several members of a union occurs once for each."""
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        members = tuple(_members(field.annotation))
        models = [one for one in members if isinstance(one, type) and issubclass(one, BaseModel)]
        for one in models:
            yield from leaves_of(one, path)
        if not models:
            yield Setting(path=path, is_text=all(one is str for one in members))


def _members(annotation: Any) -> Iterator[Any]:
    """The types that a value may have, without null and annotations; literals count as the type of their values."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _members(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for one in typing.get_args(annotation):
            yield from _members(one)
    elif origin is Literal:
        yield from {type(one) for one in typing.get_args(annotation)}
    elif annotation is not type(None):
        yield annotation


def read_layers(
    model: type[BaseModel],
    path: Path | str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    what: str,
) -> tuple[dict[str, Any], dict[Location, str], str]:
    """The raw configuration, what set each path that the file did not, and what to call it all in errors.

    Variables that name no key are left alone: other programs use the same prefix. An unknown flag is an error.
    """
    chosen = path if path is not None else environ.get(FILE_VARIABLE) or None
    raw = {} if chosen is None else read_file(Path(chosen), what=what)
    sources: dict[Location, str] = {}
    settings = settings_of(model)
    for name in sorted(settings):
        variable = VARIABLE_PREFIX + name.upper()
        if variable in environ:
            _set(raw, settings[name], environ[variable], sources, variable)
    for name, value in _flattened(flags):
        if value is None:
            continue
        if name not in settings:
            raise InvalidInput(f"{what}: there is no flag for '{name}'; {suggestion(name, settings)}")
        _set(raw, settings[name], value, sources, f"the flag --{name.replace('_', '-')}")
    return raw, sources, what if chosen is None else f"{what} in {chosen}"


def chosen_file(given: Path | str | None, environ: Mapping[str, str], usual: Path) -> Path | None:
    """The absolute path of the file that a program reads: the one that it was given, the one that `DET_CONFIG_FILE` names, or the
    usual one where there is one. None without any.

    A usual file that cannot be inspected is read anyway: without it, a program would run with defaults instead of its values.
    """
    chosen = given or environ.get(FILE_VARIABLE)
    if chosen:
        return Path(os.path.abspath(chosen))
    try:
        os.lstat(usual)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass
    return usual


def read_file(path: Path, *, what: str) -> dict[str, Any]:
    """The YAML mapping in a file. Raises InvalidInput that names the file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{what}: the file {path} does not exist") from None
    except OSError as error:
        raise InvalidInput(
            f"{what}: the file {path} cannot be read: {error.strerror}; "
            "let the user that runs this program read it, or name another file"
        ) from None
    return load_yaml(text, what=f"{what} in {path}")


def _flattened(flags: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in flags.items():
        name = prefix + key.replace("-", "_").replace(".", "_").strip("_").lower()
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{name}_")
        else:
            yield name, value


def _set(raw: dict[str, Any], setting: Setting, value: Any, sources: dict[Location, str], source: str) -> None:
    if isinstance(value, str) and not setting.is_text:
        value = load_yaml_value(value, what=source)
    place = raw
    for key in setting.path[:-1]:
        inner = place.get(key)
        if inner is None:
            inner = place[key] = {}
        if not isinstance(inner, dict):
            return  # the file has something else here, which validation will name
        place = inner
    place[setting.path[-1]] = value
    sources[setting.path] = source
