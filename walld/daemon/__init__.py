"""walld."""
