"""Which bundle serves which language pair: load, share, let go, reload."""
