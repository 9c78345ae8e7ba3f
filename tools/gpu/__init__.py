"""What the course says of a GPU, measured on one."""
