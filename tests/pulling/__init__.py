"""`dragoman pull`, with registries and files served over real HTTP by this machine, in the published formats."""
