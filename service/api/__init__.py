"""HTTP to domain and back, nothing else: one file per wire contract."""
