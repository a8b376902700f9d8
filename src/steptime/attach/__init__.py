"""What runs inside the processes of a user's own script (README.md)."""
