"""`walld selftest`: what a directory's mount can honour, tried out."""
