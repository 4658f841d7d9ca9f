"""Real processes on the loopback: a server, a proxy, a Prometheus, and a bounded load on them."""
