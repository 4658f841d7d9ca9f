"""Files: what a bundle is, and which bundle serves which language pair."""
