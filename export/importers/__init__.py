"""Models that others trained, read into the arrays that our graphs are built from, and published as proven bundles."""
