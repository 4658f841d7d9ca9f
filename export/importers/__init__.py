"""Models that others trained, as proven bundles; none of this needs torch."""
