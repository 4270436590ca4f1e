"""Self-supervised representations of brain functional connectivity, and an honest test of what they predict."""
