"""What the adapters share that know a framework: its calls, its tools, its interrupts."""
