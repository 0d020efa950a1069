"""Real NFS: the kernel's own client and server, in a virtual machine (`python -m nfs`)."""
