"""`det pool offers`, `validate` and `advise`: of a master, and of a file without one."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolute.clock import FixedClock
from resolute.errors import Unavailable
from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from resolute_master.domain.commands import RecordRefusal
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.pools.policies import pool_policies
from resolute_provisioner.clouds.base import Transient
from resolute_provisioner.model import Consolidation, Offer, RefusalKind
from resolute_provisioner.prices import LivePrice
from support.api import PASSWORD, World, a_config, an_api, master_config, settled
from support.cluster import T0
from support.pool_past import POOL as KEPT
from support.pool_past import Past, Twin, advised, kept_pool

ROOT = Path(__file__).resolve().parents[3]
POOL: dict[str, Any] = {
    "pool_name": "default",
    "shared_file_system": True,
    "provider": {
        "type": "aws",
        "ssh_key_name": "k",
        "region": "us-east-1",
        "image_id": "ami-1",
        "network_interface": {"subnets": {"us-east-1a": "s-a"}},
        "offers": [
            {"instance_types": ["g5.xlarge"], "markets": ["spot", "on_demand"], "max_price": 2},
            {"instance_types": ["g6.12xlarge"], "markets": ["spot", "on_demand"], "max_price": 3},
        ],
    },
}
SPOT, ON_DEMAND = "aws/us-east-1a/g5.xlarge/spot", "aws/us-east-1a/g5.xlarge/on_demand"
LARGE_SPOT, LARGE = "aws/us-east-1a/g6.12xlarge/spot", "aws/us-east-1a/g6.12xlarge/on_demand"


class Shell:
    """Runs commands in a thread, for the master, where there is one, is in this process."""

    def __init__(self, home: Path, world: World | None = None, watch: PriceWatch | None = None) -> None:
        self.world = world
        self.watch = watch
        self._environ = {"DET_DEBUG_CONFIG_PATH": str(home / "config"), "HOME": str(home)}
        if world is not None:
            address = str(world.server.make_url("/")).rstrip("/")
            self._environ |= {"DET_MASTER": address, "DET_USER": "root", "DET_PASS": PASSWORD}

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed, or for another code what it complained."""
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=self._environ, render=Renderer(out, err), stdin=io.StringIO())
        ended = await asyncio.to_thread(main, words, invocation)
        assert ended == code, err.getvalue()
        return out.getvalue() if code == 0 else err.getvalue()

    async def json(self, *words: str) -> Any:
        return json.loads(await self(*words, "--json"))


def written(tmp_path: Path, value: Any) -> str:
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump(value))
    return str(path)


# ------------------------------------------------------------------------------------------------- without a master


async def test_a_file_is_shown_as_a_master_would_show_it(tmp_path: Path) -> None:
    det, file = Shell(tmp_path), written(tmp_path, POOL)
    shown = await det.json("pool", "offers", "--config", file)
    assert [offer["id"] for offer in shown["offers"]] == [ON_DEMAND, SPOT, LARGE_SPOT, LARGE]
    first, unknown, _, dear = shown["offers"]
    assert (first["price"], first["priceSource"]) == (1.006, "shipped table, date unknown")
    assert (unknown["price"], unknown["expectedPrice"], unknown["blocked"]) == (None, None, "")
    assert dear["blocked"] == "its price of 4.6016 an hour is above its max_price of 3"
    text = await det("pool", "offers", "default", "--config", file)
    assert "2 of 4 prices are unknown; such offers are tried last" in text
    assert "The master asks AWS for the prices of the 2 on the spot market." in text
    rows = list(csv.reader(io.StringIO(await det("rp", "offers", "--config", file, "--csv"))))
    assert [row[:4] for row in rows[:3]] == [
        ["#", "Offer", "Slots", "Price/h"],
        ["1", ON_DEMAND, "1", "1.0060"],
        ["2", SPOT, "1", "unknown"],
    ]


async def test_every_pool_of_a_masters_configuration_is_validated(tmp_path: Path) -> None:
    local = {"pool_name": "here", "provider": {"type": "local", "slots_per_instance": 2, "max_instances": 3}}
    file = written(tmp_path, {"resource_pools": [local, {"pool_name": "default"}]})
    assert await Shell(tmp_path)("pool", "validate", file) == "here: 1 offer (1 with 2 slots), 0 to 3 machines\n"
    assert [pool["pool"] for pool in await Shell(tmp_path).json("pool", "validate", file)] == ["here"]


@pytest.mark.parametrize(
    ("content", "words", "code", "complaint"),
    [
        ({"pool_name": "default"}, ("offers",), 1, "no pool of it has a provider"),
        ({"pool_name": "default"}, ("offers", "default"), 1, "pool 'default' has no provider"),
        (POOL, ("offers", "defalt"), 1, "there is no pool 'defalt'; did you mean 'default'?"),
        (
            {"resource_pools": [{"pool_name": n, "provider": {"type": "local"}} for n in ("default", "b")]},
            ("offers",),
            2,
            "has several elastic pools; name one of default, b",
        ),
        (
            {**POOL, "provider": {**POOL["provider"], "offers": [{"instance_types": ["g5.xlarg"]}]}},
            ("offers",),
            1,
            '<config>.provider.offers[0].instance_types[0]: is not a known type (value "g5.xlarg"); did you mean',
        ),
        ({"pool_name": "default", "provider": {"type": "aws"}}, ("offers",), 1, "ssh_key_name: is a required property"),
    ],
)
async def test_what_a_file_cannot_say_is_said(
    tmp_path: Path, content: Any, words: Sequence[str], code: int, complaint: str
) -> None:
    assert complaint in await Shell(tmp_path)("pool", *words, "--config", written(tmp_path, content), code=code)


def with_provider(name: str = "default", **keys: Any) -> dict[str, Any]:
    """The pool with these keys of its provider; None leaves one out."""
    provider = {key: value for key, value in {**POOL["provider"], **keys}.items() if value is not None}
    return {"pool_name": name, "provider": provider, "shared_file_system": True}


GOOGLE = {
    "type": "gcp",
    "project": "lab-7",
    "zone": "us-central1-a",
    "instance_type": {"machine_type": "g2-standard-8"},
}


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        (with_provider(image_id=None), "provider of pool 'default': image_id: must be given"),
        (with_provider(startup_script=random.Random(1).randbytes(20_000).hex()), "provider of pool 'default': "),
        (with_provider(agent_config_file_contents={"lable": "a"}), "lable"),
        (
            {"pool_name": "default", "provider": GOOGLE, "shared_file_system": True},
            "provider.boot_disk_source_image of pool 'default' must be given",
        ),
        (
            {"pool_name": "default", "provider": {**GOOGLE, "boot_disk_source_image": "i", "labels": {"Not": "x"}}},
            "provider.labels: 'Not' is no key of a label",
        ),
        (
            {
                "pool_name": "default",
                "provider": {**GOOGLE, "boot_disk_source_image": "i", "base_config": {"nonsense": 1}},
            },
            "pool 'default': provider.base_config: Message type \"google.cloud.compute.v1.Instance\" has no field named "
            '"nonsense"',
        ),
    ],
)
async def test_what_a_starting_master_would_refuse_is_refused_in_a_file(
    tmp_path: Path, pool: dict[str, Any], complaint: str
) -> None:
    det, file = Shell(tmp_path), written(tmp_path, pool)
    assert complaint in await det("pool", "validate", file, code=1)
    assert complaint in await det("pool", "offers", "--config", file, code=1)


def gcp_pool(**provider: Any) -> dict[str, Any]:
    image = {"boot_disk_source_image": "projects/p/global/images/i", "project": "p"}
    return {"pool_name": "default", "provider": {"type": "gcp", **image, **provider}}


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (with_provider(master_url="http://127.0.0.1:8080"), "master_url of pool 'default' names 127.0.0.1, by which each"),
        (with_provider(master_url="https://localhost"), "names localhost, by which each machine reaches itself"),
        (with_provider(master_url="http://0.0.0.0:8080"), "names 0.0.0.0"),
        (with_provider(master_url="http://[::1]:8080"), "names ::1"),
        (with_provider(master_url="http://169.254.169.254"), "names 169.254.169.254"),
        (with_provider(master_url="http://internal-ip"), "a word of another cloud (value http://internal-ip:8080)"),
        (gcp_pool(zone="us-central1-a", master_url="http://local-ipv4"), "use an address, or one of: external-ip"),
        ({"host": "127.0.0.1", "resource_pools": [with_provider()]}, "the master listens on 127.0.0.1 (host)"),
        (with_provider(master_url="http://m:99999"), "a port from 1 to 65535"),
        (with_provider(master_url="http://m:0"), "a port from 1 to 65535"),
        (with_provider(master_url="http://user@m:80"), "must be scheme://host:port"),
        (with_provider(image_id="my-image"), 'image_id: must be the id of a machine image'),
        (with_provider(iam_instance_profile_arn="agents"), "must be the ARN of an instance profile"),
        (with_provider(iam_instance_profile_arn="arn:aws:iam::1:role/agents"), "must be the ARN of an instance profile"),
        (with_provider(network_interface={"security_group_id": "default"}), "must be the id of a security group"),
        (with_provider(network_interface={"security_group_ids": ["sg-1", "x"]}), "security_group_ids[1]"),
        (with_provider(region=None, network_interface={"subnets": {"here": "s"}}), "subnets.here: is no zone"),
        (with_provider(region=None, network_interface={"subnets": {"us-esat-1a": "s"}}), "us-esat-1a is in no region of the cloud"),
        (with_provider(region="us-esat-1", network_interface={}), "us-esat-1 is in no region"),
        (gcp_pool(zone="us-centrla1-a"), "us-centrla1-a is in no region"),
        (gcp_pool(zones=["somewhere"]), "provider.zones[0]: is no zone"),
    ],
)  # fmt: skip
async def test_what_no_machine_could_boot_with_or_come_back_by_is_refused_in_a_file(
    tmp_path: Path, file: dict[str, Any], complaint: str
) -> None:
    assert complaint in await Shell(tmp_path)("pool", "validate", written(tmp_path, file), code=1)


@pytest.mark.parametrize(
    "file",
    [
        with_provider(master_url="https://master.example.org"),
        with_provider(master_url="http://public-ipv4"),
        with_provider(image_id="resolve:ssm:/aws/service/x"),
        with_provider(iam_instance_profile_arn="arn:aws-us-gov:iam::111122223333:instance-profile/a/b"),
        {"host": "127.0.0.1", "resource_pools": [with_provider(master_url="http://10.0.0.7")]},
        gcp_pool(zone="us-central1-a", instance_type={"machine_type": "n1-standard-4", "gpu_num": 1}),
    ],
)
async def test_what_could_be_meant_is_let_through(tmp_path: Path, file: dict[str, Any]) -> None:
    assert "0 to 5 machines" in await Shell(tmp_path)("pool", "validate", written(tmp_path, file))


async def test_what_is_wrong_with_several_pools_is_said_at_once(tmp_path: Path) -> None:
    pools = [with_provider("default", image_id=None), with_provider("b", image_id=None), with_provider("c")]
    said = await Shell(tmp_path)("pool", "validate", written(tmp_path, {"resource_pools": pools}), code=1)
    assert all(f"provider of pool '{name}': image_id" in said for name in ("default", "b"))
    assert "'c'" not in said


async def test_what_only_the_masters_own_machine_knows_is_named(tmp_path: Path) -> None:
    det = Shell(tmp_path)
    open_ = written(tmp_path, with_provider())
    assert "runs on: provider.master_url. A master" in await det("pool", "validate", open_)
    assert (await det.json("pool", "offers", "--config", open_))["leftToMaster"] == ["provider.master_url"]
    complete = written(tmp_path, with_provider(master_url="http://10.0.0.7:8080"))
    assert "Left to the machine" not in await det("pool", "validate", complete)


async def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    det = Shell(tmp_path)
    assert "does not exist" in await det("pool", "validate", str(tmp_path / "none.yaml"), code=1)
    assert "name the pool, or a file with --config" in await det("pool", "offers", code=2)


async def test_the_documentation_shows_what_is_printed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "provisioning.md").read_text(encoding="utf-8")
    block = re.findall(r"```yaml\n(resource_pools:.*?)```", page, re.DOTALL)[0]
    path = tmp_path / "doc.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(block)["resource_pools"][0]))
    table = re.findall(r"```\n( +# \| Offer .*?)```", page, re.DOTALL)[0]
    printed = await Shell(tmp_path)("pool", "offers", "--config", str(path))
    assert printed.startswith(table)


# ---------------------------------------------------------------------------------------------------- of a master


class TwoAnswers:
    """A price, then none."""

    name = "scripted prices"

    def __init__(self) -> None:
        self._answers: list[tuple[LivePrice, ...]] = [
            (LivePrice(offer_id=SPOT, per_hour=0.4, as_of=T0 - timedelta(hours=5)),)
        ]

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        if not self._answers:
            raise Transient("RequestLimitExceeded")
        return self._answers.pop()


@pytest.fixture
async def det(tmp_path: Path) -> AsyncIterator[Shell]:
    config = {"resource_pools": [POOL, {"pool_name": "static"}]}
    policies = pool_policies(master_config(tmp_path, **config))
    watches: list[PriceWatch] = []
    async with an_api(tmp_path, pools=policies, config=config, clock=FixedClock(T0), price_watches=watches) as world:
        scaling = policies[PoolName("default")].scaling
        assert scaling is not None
        clock = world.context.clock
        watches.append(
            PriceWatch(
                world.engine,
                PoolName("default"),
                TwoAnswers(),
                offers=scaling.offers,
                period_s=300,
                clock=clock,
                rng=random.Random(1),
            )
        )
        yield Shell(tmp_path, world, watches[0])


async def test_a_master_tells_what_it_has_learnt(det: Shell) -> None:
    assert det.world is not None and det.watch is not None
    await det.watch.ask()
    await det.watch.ask()
    await det.world.create(a_config())
    (machine,) = det.world.engine.state.all(Instance)
    assert machine.offer_id == SPOT
    await det.world.engine.submit(
        RecordRefusal(instance=machine.id, kind=RefusalKind.NO_CAPACITY, message="there are none in us-east-1a")
    )
    await settled(det.world)
    (second,) = [i for i in det.world.engine.state.all(Instance) if not i.over]
    assert second.offer_id == ON_DEMAND  # the next best is asked at once

    answer = await det.json("pool", "offers", "default")
    offers = {offer["id"]: offer for offer in answer["offers"]}
    assert next(iter(offers)) == ON_DEMAND
    spot = offers[SPOT]
    assert (spot["price"], spot["priceSource"], spot["lastRefusal"]) == (0.4, "scripted prices", "no_capacity")
    assert "no capacity: there are none in us-east-1a" in spot["blocked"]
    assert offers[ON_DEMAND]["machines"] == 1
    assert (answer["prices"]["failures"], answer["prices"]["error"]) == (1, "RequestLimitExceeded")

    text = await det("pool", "offers", "default")
    assert "scripted prices, since 5 h" in text
    assert re.search(r"not for \d+s: no capacity: there are none in us-east-1a", text)
    assert "refused 0s ago (no_capacity)" in text
    assert "Prices of the moment cannot be had, 1 time(s) in a row (scripted prices): RequestLimitExceeded" in text


async def test_a_pool_that_buys_nothing_says_so(det: Shell) -> None:
    assert "Pool static has no provider, and so buys no machines." in await det("pool", "offers", "static")
    assert "resource pool 'none' not found" in await det("pool", "offers", "none", code=1)


async def test_only_the_pools_of_a_file_are_looked_at_where_it_names_no_default(tmp_path: Path) -> None:
    pool = {"pool_name": "gpus", "provider": {"type": "local", "slots_per_instance": 2, "max_instances": 3}}
    file = written(tmp_path, {"resource_pools": [pool]})
    assert (await Shell(tmp_path)("pool", "validate", file)).startswith("gpus: 1 offer")
    manager = {"type": "agent", "default_aux_resource_pool": "gpu", "default_compute_resource_pool": "gpus"}
    file = written(tmp_path, {"resource_pools": [pool], "resource_manager": manager})
    said = await Shell(tmp_path)("pool", "validate", file, code=1)
    assert said.startswith("Failed to check the pools of a file: ") and "default_aux_resource_pool" in said


# ------------------------------------------------------------------------------------------------------------- advice


async def test_advise_shows_what_other_settings_would_save(tmp_path: Path) -> None:
    store = Past(runs=40)
    pools = kept_pool()
    async with an_api(tmp_path, store=store, clock=store.clock, pools=pools, advices=advised(Twin())) as world:
        det = Shell(tmp_path, world)
        shown = await det("pool", "advise", "default")
        (row,) = [line for line in shown.splitlines() if "min_instances" in line]
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[:3] == ["min_instances", "1", "0"]
        saves, cost = float(cells[3].replace(",", "")), 3.6 * 24 * 30
        assert 0.8 * cost < saves < cost and cells[4].endswith("%")
        assert "By a simulation of the 40 pieces of work of the last 3.3 days, machines starting in 3m00s" in shown
        assert "Each change was simulated alone" in shown and "shorter than a week" in shown
        told = await det.json("pool", "advise", "default")
        (change,) = told["advice"]["changes"]
        assert f"{change['savesAMonth']:,.2f}" == cells[3]
        assert "resource pool 'x'" in await det("pool", "advise", "x", code=1)


async def test_advise_waits_for_an_answer_and_says_why_there_is_none(tmp_path: Path) -> None:
    store, twin = Past(runs=40), Twin()
    twin.open.clear()
    advices = advised(twin)
    async with an_api(tmp_path, store=store, clock=store.clock, pools=kept_pool(), advices=advices) as world:
        asked = asyncio.create_task(Shell(tmp_path, world)("pool", "advise", "default"))
        await twin.asked.wait()
        twin.error = Unavailable("it took longer than it may")
        twin.open.set()
        assert await asked == "There is no advice: it took longer than it may.\n"
    kept = kept_pool()[KEPT]
    assert kept.scaling is not None
    tuned = replace(kept.scaling, min_instances=0, consolidation=Consolidation())
    bare = replace(tuned, consolidation=None)
    given: dict[str, Any] = {
        "store": Past(runs=20),
        "clock": store.clock,
        "pools": {KEPT: replace(kept, scaling=tuned)},
    }
    async with an_api(tmp_path / "one", advices=advised(Twin()), **given) as world:
        shown = await Shell(tmp_path, world)("pool", "advise", "default")
        assert shown.startswith("The pool already has the better value of every setting that was considered")
    given["pools"] = {KEPT: replace(kept, scaling=bare)}
    async with an_api(tmp_path / "bare", advices=advised(Twin()), **given) as world:
        shown = await Shell(tmp_path, world)("pool", "advise", "default")
        assert shown.startswith("Simulated changes: 1. None of them saves anything in this pool.\n")
    async with an_api(tmp_path / "two", advices=advised(Twin())) as world:
        det = Shell(tmp_path, world)
        assert "There is no advice: pool 'default' has no provider" in await det("pool", "advise", "default")
        told = await det.json("pool", "advise", "default")
        assert told["advice"] is None and "has no provider" in told["reason"]
