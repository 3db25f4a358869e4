"""Files that go with this package: Terraform modules, units of systemd, and what a machine installs."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[1]
_IN_CHECKOUT = {
    "terraform": CHECKOUT / "terraform",
    "systemd": CHECKOUT / "deploy" / "systemd",
    "requirements.lock": CHECKOUT / "requirements" / "master.lock",
}


def shipped(name: str) -> Path:
    """`terraform`, `systemd` or `requirements.lock`: in the package where it was installed from a wheel, else in the checkout."""
    installed = PACKAGE / name
    return installed if installed.exists() else _IN_CHECKOUT[name]
