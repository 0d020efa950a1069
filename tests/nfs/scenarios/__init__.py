"""What goes wrong on a file server, one scenario a module, each run in the guest by `inside.py`."""
