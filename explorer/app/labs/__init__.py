"""Panels of labs."""
