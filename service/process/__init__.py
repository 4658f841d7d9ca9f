"""One server process: sockets, signals, drain, reload, the interpreter, the container's CPU."""
