"""`det deploy gcp` from nothing to nothing: Terraform makes a cluster through a provider that is made of the published schema, the
master's machine boots with the very start-up script, its master buys machines of the same Compute Engine, a training saves to the
bucket, and `down` leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.deploy_scenario import Scenario, deploy_scenario
from support.deployed_gcp import google_world

pytestmark = [
    pytest.mark.needs("machines"),
    pytest.mark.needs("terraform program"),
    pytest.mark.needs("postgres"),
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with google_world(tmp_path_factory.mktemp("deploy")) as world:
        try:
            yield deploy_scenario(world)
        except BaseException:
            for machine in world.bridge.machines.values():
                print(machine.log()[-3000:])
                for log in sorted((machine.directory / "lib" / "resolute-deploy").glob("*.log")):
                    print(f"== {log.name}\n{log.read_text()[-6000:]}")
            raise


def test_up_brings_a_master_that_serves_and_says_how_to_use_it(scenario: Scenario) -> None:
    assert scenario.made["master_url"].startswith("https://")
    assert scenario.certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert [each["stage"] for each in scenario.made["stages"]][:3] == ["packages", "python", "wheel"]


def test_an_experiment_is_trained_on_a_machine_that_the_master_bought(scenario: Scenario) -> None:
    assert scenario.experiment["experiment"]["state"].endswith("COMPLETED")
    names = sorted(scenario.world.bridge.machines)
    assert len(names) == 2 and names[0].startswith("resolute-vision--") and names[1] == "resolute-vision-master"


def test_its_checkpoint_is_in_the_bucket(scenario: Scenario) -> None:
    assert [key for key in scenario.objects if key.endswith("/weights")]


def test_a_second_up_changes_nothing(scenario: Scenario) -> None:
    assert "Nothing would change" in scenario.again


def test_down_leaves_nothing(scenario: Scenario) -> None:
    assert "nothing else of it is left" in scenario.down
    assert scenario.left == []
