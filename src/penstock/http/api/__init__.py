"""What the console calls. Public like the rest, and made for screens: one request for one view."""
