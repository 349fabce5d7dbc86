"""Who may use this installation, and how its machine is protected."""
