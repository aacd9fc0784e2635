"""The page: widgets that carry choices in and pictures out. No mathematics lives here."""
