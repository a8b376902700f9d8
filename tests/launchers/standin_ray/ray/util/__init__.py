"""As Ray's package."""
