"""What `make check` runs beside the linters: docs and packages that must be right."""
