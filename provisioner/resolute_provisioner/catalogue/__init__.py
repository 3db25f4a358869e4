"""Machine types and their on-demand prices, as far as they are known without a query to a cloud.

Contains shapes (vCPUs, memory, accelerators) and list prices by region.
Must not depend on pools, offers, beliefs or any API.

    Catalogue       the types of one cloud: `shape`, `price`, `with_shapes` for those that the cloud itself has described
    Shape           one type
    shipped         the catalogue of a provider that comes with the distribution; `scripts/price_tables.py` writes its tables
    TypeRules       how one cloud writes types, zones and regions (in `rules`); each provider's package has its own

The date of the tables is unknown, and they contain no negotiated prices: a price from here is a default for ranking and for
estimates, and always shown with its source. Spot prices are not shipped.
"""

from resolute_provisioner.catalogue.shapes import Catalogue, Shape
from resolute_provisioner.catalogue.shipped import shipped

__all__ = ["Catalogue", "Shape", "shipped"]
