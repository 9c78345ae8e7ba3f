"""Programs that nobody here wrote, asked whether they agree with this one; a file a judge."""
