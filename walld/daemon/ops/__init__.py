"""What operators see: status, the service manager, log lines."""
