"""The panel for a model that is not ours."""
