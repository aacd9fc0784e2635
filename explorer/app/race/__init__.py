"""The Race panel."""
