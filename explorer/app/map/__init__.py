"""The Map panel."""
