"""What an agent or a reader notices when something goes wrong, one question a module."""
