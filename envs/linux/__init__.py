"""The engine `linux`: real time on this machine's kernel."""
