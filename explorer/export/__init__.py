"""Exports of the page: designs as Python and as plain torch, settings as Python, sources as
BibTeX."""
