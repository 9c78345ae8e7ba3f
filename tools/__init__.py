"""What stands outside the course: other programs as judges, an engine, a GPU. Each folder has its own `make` target."""
