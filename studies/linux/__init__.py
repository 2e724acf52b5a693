"""How close simulations are to this machine's kernel: `make linux` writes docs/results/linux.md."""
