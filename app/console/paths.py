"""Where the console lives."""

PATH = "/console"
