"""The Explore panel."""
