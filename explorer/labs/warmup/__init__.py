"""The lab Warm-up: an experiment, its pictures, and the row that puts them on the page."""
