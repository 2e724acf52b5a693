"""The ns3-gym protocol in both directions: our engine's process serves it, our client drives any simulation of it."""
