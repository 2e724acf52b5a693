"""The congestion controllers: C++ (`cc`), their names and parameters (`registry`), a policy's files (`policy_file`)."""
