"""The congestion controllers: C++ (`cc`), `registry` of names, and files: `policy_file`, `controller_file` (C)."""
