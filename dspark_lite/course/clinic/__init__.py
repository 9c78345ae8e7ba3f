"""Services with a planted fault, and the hunt for three of them."""
