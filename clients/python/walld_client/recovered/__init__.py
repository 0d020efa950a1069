"""What is left of a reply, as an application reads it and as a provider takes it."""
