"""What only a browser can tell: that the page appears, obeys and stays within its own host."""
