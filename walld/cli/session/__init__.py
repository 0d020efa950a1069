"""`walld session`: show, fork, import, export and delete sessions."""
