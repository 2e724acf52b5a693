"""The congestion controllers: C++ in `cc/`, their names and parameters in Python, and the file format of a policy."""
