"""The stock ns3-gym protocol, in both directions: a client for any simulation, a server for any client."""
