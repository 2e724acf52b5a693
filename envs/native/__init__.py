"""The built-in engine: scenarios simulated in this process, in C++."""
