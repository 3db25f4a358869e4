"""Files that are shipped with this package: Terraform modules, units of systemd, and a machine's requirements."""

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
    """`terraform`, `systemd` or `requirements.lock`: from the installed wheel, else from the checkout."""
    installed = PACKAGE / name
    return installed if installed.exists() else _IN_CHECKOUT[name]
