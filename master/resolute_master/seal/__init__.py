"""The cluster's own secrets, sealed: a copy of the database alone is not the cluster.

Every secret that the master makes for itself (signing key, join key, ...) is encrypted in the settings of the store by a data
key. The data key is encrypted by the sealing key, which comes from a file, the configuration or a command, and is never stored in
the database. Uses the settings of the store and the configuration. Must not depend on the purpose of a secret.
"""

from resolute_master.seal.cluster_secrets import ClusterSecrets, open_secrets

__all__ = ["ClusterSecrets", "open_secrets"]
