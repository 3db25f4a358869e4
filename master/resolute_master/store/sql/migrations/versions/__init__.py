"""One module a migration, see the package above."""
