"""The engine `ns3`: a worker process that simulates in ns-3."""
