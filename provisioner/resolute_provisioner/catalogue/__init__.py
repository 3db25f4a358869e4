"""What machine types there are, and what they cost on demand, as far as it is known without asking a cloud.

Knows shapes (vCPUs, memory, accelerators), list prices by region, and how the clouds write types, zones and regions.
Must not know pools, offers, beliefs or any API.

    Catalogue       the types of one cloud: `shape`, `price`, `with_shapes` for what the cloud itself has told
    Shape           one type
    shipped         the catalogue that comes with the distribution; `scripts/price_tables.py` writes its tables
    aws, gcp        how the two clouds spell types and zones, and which of their types share a quota

The tables are of an unknown date, and no negotiated price is in them: a price from here is a default for ranking and for
estimates, and always shown with its source. Spot prices are not shipped at all.
"""

from resolute_provisioner.catalogue.shapes import Catalogue, Shape
from resolute_provisioner.catalogue.shipped import shipped

__all__ = ["Catalogue", "Shape", "shipped"]
