"""What holds for the Terraform files of Google Cloud, read by python-hcl2 and held against the provider's published schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resolute_deploy.gcp.resources import NOUNS_OF_GCLOUD
from support.terraform_files import TerraformFiles, text
from support.terraform_provider import schema

GCP = TerraformFiles("gcp")
SCHEMA = schema()
META = frozenset({"count", "for_each", "depends_on", "lifecycle", "provider"})
LABELS = ("labels", "user_labels")
OPEN = "0.0.0.0/0"
PEOPLE_OF_IAP = "35.235.240.0/20"
"""From where Identity-Aware Proxy comes, as Google publishes it."""


def problems(body: dict[str, Any], block: dict[str, Any], where: str) -> Iterator[str]:
    """What the schema does not know, lacks, or wants to be there once."""
    dynamic = {text(next(iter(each))): next(iter(each.values())) for each in body.get("dynamic", [])}
    given = {key for key in body if key not in META and key != "dynamic" and not key.startswith("__")} | dynamic.keys()
    for name in sorted(given - block["attributes"].keys() - block["blocks"].keys()):
        yield f"{where}: the provider knows no {name}"
    for name in sorted(given & block["attributes"].keys()):
        if block["attributes"][name][1] == "computed":
            yield f"{where}: {name} is the provider's to tell"
    needed = {name for name, (_, how) in block["attributes"].items() if how == "required"}
    needed |= {name for name, inner in block["blocks"].items() if inner["required"]}
    yield from (f"{where}: {name} is missing" for name in sorted(needed - given))
    for name, inner in block["blocks"].items():
        found = [*body.get(name, []), *(each for each in dynamic.get(name, {}).get("content", []))]
        if len(body.get(name, [])) > 1 and not inner["many"]:
            yield f"{where}: {name} may be there once"
        for each in found:
            yield from problems(each, inner, f"{where}.{name}")


def test_the_provider_takes_every_resource() -> None:
    of_provider = [each for each in GCP.resources if each[1].startswith("google_")]
    assert of_provider
    for place, name, body in of_provider:
        kind = name.partition(".")[0]
        assert kind in SCHEMA["resources"], (
            f"run scripts/google_schema.py: the schema of the tests does not have {kind} yet"
        )
        assert list(problems(body, SCHEMA["resources"][kind], place)) == []


def test_data_sources_are_known() -> None:
    for _, name, body in GCP.blocks("data"):
        assert list(problems(body, SCHEMA["data"][name.partition(".")[0]], name)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": '"red"'}, "the provider knows no colour"),
        ({"name": None}, "name is missing"),
        ({"self_link": '"x"'}, "self_link is the provider's to tell"),
        ({"boot_disk": [{"colour": 1}]}, "boot_disk: the provider knows no colour"),
    ],
)
def test_each_kind_of_mistake_is_found(change: dict[str, Any], words: str) -> None:
    (master,) = GCP.of("google_compute_instance")
    body = {key: value for key, value in {**master, **change}.items() if value is not None}
    found = list(problems(body, SCHEMA["resources"]["google_compute_instance"], "master"))
    assert len(found) == 1 and words in found[0]


def test_every_resource_that_can_be_is_labelled() -> None:
    for place, name, body in GCP.resources:
        block = SCHEMA["resources"].get(name.partition(".")[0], {"attributes": {}, "blocks": {}})
        places = [(body, block)] + [(each, block["blocks"]["settings"]) for each in body.get("settings", [])]
        can = any(key in inner["attributes"] for _, inner in places for key in LABELS)
        assert any(key in outer for outer, _ in places for key in LABELS) is can, place


def test_the_master_and_its_disk_are_labelled() -> None:
    (master,) = GCP.of("google_compute_instance")
    assert text(master["labels"]) == text(master["boot_disk"][0]["initialize_params"][0]["labels"]) == "${var.labels}"


def test_connections_come_from_people_or_from_the_clusters_accounts() -> None:
    for rule in GCP.of("google_compute_firewall"):
        if "source_ranges" in rule:
            assert text(rule["source_ranges"]) == "${var.inbound_cidr}"
        else:
            assert rule["source_service_accounts"]
        assert rule["target_service_accounts"]
    written = "".join(file.read_text() for file in GCP.files if file.name == "main.tf" and "examples" not in file.parts)
    assert OPEN not in written and PEOPLE_OF_IAP in written


def test_no_right_is_broad() -> None:
    """No basic role and none of an administrator; of the project, a role of ours or the one that writes logs."""
    roles = [text(body["role"]) for _, name, body in GCP.resources if "_iam_member." in name]
    assert not [role for role in roles if role in ("roles/owner", "roles/editor") or "admin" in role.lower()]
    of_project = [text(each["role"]) for each in GCP.of("google_project_iam_member")]
    assert [role for role in of_project if not role.startswith("${google_project_iam_custom_role.")] == [
        "roles/logging.logWriter"
    ]


def test_what_changes_machines_is_bound_to_the_clusters_prefix() -> None:
    changing = ("create", "delete", "set", "update", "insert")
    roles = {
        name.partition(".")[2]: [text(each) for each in body["permissions"]]
        for _, name, body in GCP.resources
        if name.startswith("google_project_iam_custom_role.")
    }
    assert not [each for each in roles["look"] if each.rsplit(".", 1)[1].startswith(changing)]
    assert not [each for role in roles.values() for each in role if "*" in each]
    members = {
        name.partition(".")[2]: body for _, name, body in GCP.resources if name.startswith("google_project_iam_m")
    }
    expression = text(members["machines"]["condition"][0]["expression"])
    assert expression.count("startsWith") == 2 and expression.count("${var.agent_prefix}") == 2
    assert "${var.database_instance}" in text(members["database"]["condition"][0]["expression"])


def test_agents_have_their_checkpoints_and_nothing_else() -> None:
    held = [
        (name, body)
        for _, name, body in GCP.resources
        if "_iam_member." in name and "service_account.agent" in text(body["member"])
    ]
    assert [name for name, _ in held] == ["google_storage_bucket_iam_member.agent"]
    assert text(held[0][1]["condition"][0]["expression"]) == '${local.folder["checkpoints"]}'


def test_no_cluster_takes_the_prefix_of_another() -> None:
    """Two dashes end the name of a cluster, which may not have two."""
    (id_,) = [body for name, body in GCP.variables if name == "variables.tf:cluster_id"]
    assert "--" in text(id_["validation"][0]["condition"])
    (locals_,) = [body for file, _, body in GCP.blocks("locals") if GCP.place(file) == "main.tf"]
    assert text(locals_["agent_prefix"]) == "${local.name}--"


def test_what_is_stored_is_private_and_encrypted_on_its_way() -> None:
    (database,) = GCP.of("google_sql_database_instance")
    ((settings),) = database["settings"]
    (addresses,) = settings["ip_configuration"]
    assert addresses["ipv4_enabled"] is False and text(addresses["ssl_mode"]) == "ENCRYPTED_ONLY"
    assert text(database["database_version"]) == "POSTGRES_16"
    assert text(settings["deletion_protection_enabled"]) == "${var.deletion_protection}"
    (bucket,) = GCP.of("google_storage_bucket")
    assert text(bucket["public_access_prevention"]) == "enforced" and bucket["uniform_bucket_level_access"] is True
    assert bucket["force_destroy"] is False


def test_no_state_holds_a_password() -> None:
    """The master's machine makes them: Terraform makes secrets without versions, and no user of the database."""
    kinds = {name.partition(".")[0] for _, name, _ in GCP.resources}
    assert not kinds & {"google_secret_manager_secret_version", "google_sql_user", "google_service_account_key"}


def test_the_master_is_hardened() -> None:
    (master,) = GCP.of("google_compute_instance")
    (shield,) = master["shielded_instance_config"]
    assert shield["enable_secure_boot"] is True and shield["enable_vtpm"] is True
    metadata = {text(key): text(value) for key, value in master["metadata"].items()}
    assert metadata["enable-oslogin"] == metadata["block-project-ssh-keys"] == "TRUE"
    assert [text(each) for each in master["service_account"][0]["scopes"]] == ["cloud-platform"]


def test_an_address_of_the_internet_is_an_option() -> None:
    (master,) = GCP.of("google_compute_instance")
    (interface,) = master["network_interface"]
    assert "access_config" not in interface
    assert "var.public" in str(interface["dynamic"])
    (subnetwork,) = GCP.of("google_compute_subnetwork")
    assert subnetwork["private_ip_google_access"] is True


def test_down_looks_for_every_kind_of_resource() -> None:
    """What has neither a life of its own nor a price of its own goes with what it belongs to."""
    parts = {
        *("google_compute_router_nat", "google_compute_subnetwork_iam_member", "google_project_iam_member"),
        *("google_secret_manager_secret_iam_member", "google_service_account_iam_member"),
        *("google_service_networking_connection", "google_sql_database", "google_storage_bucket_iam_member"),
        *("google_storage_bucket_object", "terraform_data"),
    }
    looked_for = {type_ for type_, _ in NOUNS_OF_GCLOUD.values()} | {
        *("google_compute_global_address", "google_sql_database_instance", "google_filestore_instance"),
        *("google_secret_manager_secret", "google_service_account", "google_project_iam_custom_role"),
        "google_storage_bucket",
    }
    assert {name.partition(".")[0] for _, name, _ in GCP.resources} <= parts | looked_for
