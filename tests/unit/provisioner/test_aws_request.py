"""What RunInstances is asked for, as a value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import render_boot_script
from resolute_provisioner.clouds.aws.fake import HOST
from resolute_provisioner.clouds.aws.request import AwsSettings, client_token, render_launch_request
from resolute_provisioner.model import Market, Offer
from support.provisioner import a_request

SETTINGS = AwsSettings(
    region="us-east-1",
    image_id="ami-1",
    host=HOST,
    key_name="key",
    instance_profile_arn="arn:aws:iam::1:instance-profile/agents",
    subnets={"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"},
    security_group_ids=("sg-1", "sg-2"),
    public_ip=False,
    root_volume_gb=300,
    tags={"managed_by": "master-1", "team": "vision"},
)


def an_offer(**changes: Any) -> Offer:
    given: dict[str, Any] = {
        "offer_id": "aws/us-east-1a/g5.xlarge/spot",
        "instance_type": "g5.xlarge",
        "zone": "us-east-1a",
        "market": Market.SPOT,
        "slots": 1,
        "max_price_per_hour": 0.5,
    }
    return Offer(**{**given, **changes})


def rendered(settings: AwsSettings = SETTINGS, **changes: Any) -> dict[str, Any]:
    return render_launch_request(a_request(offer=an_offer(**changes)), settings, root_device="/dev/xvda")


def test_a_spot_machine_in_full() -> None:
    request = a_request(offer=an_offer())
    tags = [
        {"Key": "Name", "Value": "determined-ai-agent"},
        {"Key": "determined-master-address", "Value": "127.0.0.1:8080"},
        {"Key": "determined-resource-pool", "Value": "default"},
        {"Key": "managed_by", "Value": "master-1"},
        {"Key": "resolute:cluster", "Value": "cluster-1"},
        {"Key": "resolute:instance", "Value": "i-1"},
        {"Key": "resolute:pool", "Value": "default"},
        {"Key": "resolute:token", "Value": "token-i-1"},
        {"Key": "team", "Value": "vision"},
    ]
    assert rendered() == {
        "ClientToken": client_token(request),
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": "ami-1",
        "InstanceType": "g5.xlarge",
        "UserData": render_boot_script(request.boot, HOST),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"VolumeSize": 300, "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "AssociatePublicIpAddress": False,
                "DeleteOnTermination": True,
                "SubnetId": "subnet-a",
                "Groups": ["sg-1", "sg-2"],
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume", "spot-instances-request")
        ],
        "KeyName": "key",
        "IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/agents"},
        "InstanceMarketOptions": {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
                "MaxPrice": "0.5",
            },
        },
    }


def test_both_markets_differ_in_nothing_but_the_market() -> None:
    spot, on_demand = rendered(), rendered(market=Market.ON_DEMAND, max_price_per_hour=None)
    del spot["InstanceMarketOptions"]
    spot["TagSpecifications"].pop()
    assert spot == on_demand


def test_without_a_price_of_ours_ec2_goes_up_to_the_on_demand_price() -> None:
    assert "MaxPrice" not in rendered(max_price_per_hour=None)["InstanceMarketOptions"]["SpotOptions"]
    assert rendered(max_price_per_hour=0.0123456)["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.012346"
    assert rendered(max_price_per_hour=3.0)["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "3"


def test_the_zone_is_the_subnets_or_else_named() -> None:
    assert rendered(zone="us-east-1b")["NetworkInterfaces"][0]["SubnetId"] == "subnet-b"
    assert "Placement" not in rendered(zone="us-east-1b")
    free = replace(SETTINGS, subnets={})
    assert rendered(free)["Placement"] == {"AvailabilityZone": "us-east-1a"}
    anywhere = rendered(free, zone="")
    assert "Placement" not in anywhere and "SubnetId" not in anywhere["NetworkInterfaces"][0]
    one = replace(SETTINGS, subnets={}, subnet_id="subnet-only")
    assert rendered(one, zone="")["NetworkInterfaces"][0]["SubnetId"] == "subnet-only"


@pytest.mark.parametrize(
    ("reservation", "target"),
    [
        ("cr-0123", {"CapacityReservationId": "cr-0123"}),
        ("arn:aws:resource-groups:x", {"CapacityReservationResourceGroupArn": "arn:aws:resource-groups:x"}),
    ],
)
def test_reserved_capacity_is_named(reservation: str, target: dict[str, str]) -> None:
    asked = rendered(market=Market.ON_DEMAND, reservation=reservation)
    assert asked["CapacityReservationSpecification"] == {"CapacityReservationTarget": target}


def test_ours_win_over_tags_of_the_operator() -> None:
    settings = replace(SETTINGS, tags={"resolute:cluster": "another", "determined-resource-pool": "another"})
    tags = {tag["Key"]: tag["Value"] for tag in rendered(settings)["TagSpecifications"][0]["Tags"]}
    assert (tags["resolute:cluster"], tags["determined-resource-pool"]) == ("cluster-1", "default")


def test_the_client_token_names_cluster_and_machine() -> None:
    one = client_token(a_request())
    assert len(one) == 64 and one == client_token(a_request(token="another", offer=an_offer()))
    assert len({one, client_token(a_request("i-2")), client_token(a_request(cluster="cluster-2"))}) == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"image_id": ""}, "image_id"),
        ({"tags": {"aws:x": "1"}}, "aws:x"),
        ({"tags": {"": "1"}}, "custom_tags"),
        ({"tags": {"long": "x" * 257}}, "257 characters"),
        ({"tags": {f"tag-{n}": "" for n in range(44)}}, "44 are too many"),
    ],
)
def test_what_ec2_would_refuse_is_refused_before(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        replace(SETTINGS, **change)
