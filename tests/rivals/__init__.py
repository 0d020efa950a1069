"""What is lost when: walld and what is used in its place, under the same faults on the same rig."""
