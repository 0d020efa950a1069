"""What recording costs, one question a module: agents, intake, memory, disks, sessions."""
