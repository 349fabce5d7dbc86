"""``python -m app.cli``, the same as ``zonectl``; the supervisor starts its children by it, with its own
interpreter."""

from app.cli.main import run

if __name__ == "__main__":
    run()
