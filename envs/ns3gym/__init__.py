"""The stock ns3-gym protocol, in both directions: a client for any simulation, a server for any client."""

from bbrgym.extras import optional

with optional("the protocol of ns3-gym"):
    import google.protobuf  # noqa: F401
    import zmq  # noqa: F401
