"""The bundle format: what the files of a bundle are, and how they are checked."""
