"""Changes of a group's members, one step at a time."""
