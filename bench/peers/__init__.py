"""What a user would pick instead, each behind the same two calls: one file per peer."""
