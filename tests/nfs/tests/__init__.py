"""Tests of the NFS runs themselves, without a guest."""
