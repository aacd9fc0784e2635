"""Links: the page's record as a query that a person can read, and back."""
