"""What is taken home from the page: designs and settings as Python, sources as BibTeX."""
