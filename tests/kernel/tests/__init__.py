"""Tests of the kernel loops themselves, each with a small count."""
