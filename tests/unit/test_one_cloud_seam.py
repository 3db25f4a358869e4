"""Nothing outside a provider's package asks which provider a pool has: that is asked of the registry, `resolute.providers`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute.config.providers import ProviderBase, configuration_of
from resolute.providers import PROVIDERS, Registration, part
from resolute_deploy.cloud import cloud_machine, deployment, facts_of
from resolute_deploy.cluster_directory import module_variables
from resolute_provisioner.clouds.driver import Driver, driver_named, drivers
from unit.test_tidy import PACKAGES, python_files

REGISTRY = "harness/resolute/providers.py"

NAMES = frozenset(PROVIDERS)
NOTICE_SOURCES = frozenset(each.notice_source for each in PROVIDERS.values() if each.notice_source)
WORDS = NAMES | NOTICE_SOURCES
OWN_PACKAGES = (
    *(each.package for each in PROVIDERS.values()),
    *(each.deployment.package for each in PROVIDERS.values() if each.deployment is not None),
)
"""Where a provider may be named: how its machines are bought, and how clusters are deployed on it."""

OTHER_MEANINGS = {
    ("harness/resolute/testing/scripted_trial.py", "command"),
    ("cli/resolute_cli/local_plan.py", "command"),
    ("deploy/resolute_deploy/cluster_directory.py", "local"),  # a backend of Terraform
}
"""(file, word) where the word means something else than a provider."""


def package_of(name: str) -> str:
    """The dotted name of a file's module."""
    path = Path(name).with_suffix("")
    parts = path.parts[path.parts.index(next(p for p in path.parts if p.startswith("resolute"))) :]
    return ".".join(parts)


def is_a_providers_own(name: str) -> bool:
    return _is_below_a_provider(package_of(name))


def switches_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of all that chooses by a provider."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if _is_below_a_provider(module):
                yield node.lineno, f"imports {module}"
            case ast.ImportFrom(module="resolute_provisioner.clouds", names=names):
                yield from ((node.lineno, f"imports {each.name}") for each in names if each.name in NAMES)
            case ast.Import(names=names):
                yield from ((node.lineno, f"imports {n.name}") for n in names if _is_below_a_provider(n.name))
            case ast.Compare(left=left, comparators=comparators):
                words = {word for side in (left, *comparators) for word in _constants(side)}
                yield from ((node.lineno, f"compares with '{word}'") for word in sorted(words & WORDS))
            case ast.MatchValue(value=ast.Constant(value=str(word))) if word in WORDS:
                yield node.lineno, f"has a case '{word}'"
            case ast.Dict(keys=keys):
                words = {word for key in keys if key is not None for word in _constants(key)}
                yield from ((node.lineno, f"has an entry for '{word}'") for word in sorted(words & WORDS))
            case ast.Call(func=ast.Attribute(attr="startswith" | "removeprefix" | "partition"), args=args):
                words = {word.rstrip("/") for each in args for word in _constants(each)}
                yield from ((node.lineno, f"looks for '{word}'") for word in sorted(words & WORDS))


def _is_below_a_provider(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in OWN_PACKAGES)


def _constants(node: ast.expr) -> Iterator[str]:
    """The text of a constant, and those of a tuple, list or set of them."""
    match node:
        case ast.Constant(value=str(word)):
            yield word
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for each in parts:
                yield from _constants(each)


def found_in(name: str, text: str) -> list[str]:
    others = [f"'{word}'" for file, word in OTHER_MEANINGS if file == name]
    found = switches_in(ast.parse(text))
    return [f"{name}:{line}: {what}" for line, what in found if not what.endswith(tuple(others))]


def test_nothing_outside_of_a_providers_package_chooses_by_provider() -> None:
    found = [
        problem
        for name, text in python_files(*PACKAGES)
        if name != REGISTRY and not is_a_providers_own(name)
        for problem in found_in(name, text)
    ]
    assert found == [], "ask the registry (docs/adding/a-cloud.md):\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'if provider.type == "aws":\n    pass',
        'rented = name in ("aws", "gcp")',
        'match name:\n    case "gcp":\n        pass',
        'ADDRESSES = {"aws": (), "gcp": ()}',
        'asked = offer_id.startswith("aws/")',
        "from resolute_provisioner.clouds.aws.configuration import AwsProvider",
        "from resolute_provisioner.clouds import gcp",
        "from resolute_deploy.aws.account import AwsAccount",
        "import resolute_provisioner.clouds.local.driver",
        'if settings.notice_metadata == "ec2":\n    pass',
    ],
)
def test_each_way_to_choose_is_found(text: str) -> None:
    assert len(found_in("master/resolute_master/pools/anything.py", text)) >= 1


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_registration_has_all_its_parts(name: str) -> None:
    model, driver = configuration_of(name), driver_named(name)
    assert issubclass(model, ProviderBase) and isinstance(driver, Driver)
    assert model.model_fields["type"].default == driver.name == name
    assert set(driver.remembered_keys) <= set(model.model_fields)
    assert bool(driver.types_file) == (type(driver).type_source is not Driver.type_source)
    assert driver.reports_spot_prices == (type(driver).price_source is not Driver.price_source)
    registration: Registration = PROVIDERS[name]
    if registration.notice_source:
        assert callable(part(name, "notices", "open_notices"))


@pytest.mark.parametrize("name", [name for name, each in PROVIDERS.items() if each.deployment is not None])
def test_a_deployment_has_all_its_parts(name: str) -> None:
    module, there = deployment(name), {each.name for each in module_variables(name)}
    assert module.hidden <= there and set(module.listed.values()) <= there
    assert facts_of(name) is not None and cloud_machine(name).passed_variables
    assert set(module.aliases) <= {"--state-path", "--state-bucket"}


def test_words_for_addresses_are_of_one_provider() -> None:
    words = [word for driver in drivers() for word in driver.address_words]
    assert len(words) == len(set(words))
