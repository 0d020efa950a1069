"""Who speaks while a question is asked: agents and disks in processes of their own."""
