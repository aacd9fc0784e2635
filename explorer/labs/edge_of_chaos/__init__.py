"""The lab Edge of chaos: an experiment, its pictures, and the row that puts them on the page."""
