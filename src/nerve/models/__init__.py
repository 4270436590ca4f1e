"""Torch modules of the comparison methods. They know tensors, and no files."""
