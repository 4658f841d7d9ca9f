"""What others can see of a server: metrics, log lines, traces."""
