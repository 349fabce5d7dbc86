"""``python -m app.cli`` is ``zonectl``; the supervisor starts its children so, with its own interpreter."""

from app.cli.main import run

if __name__ == "__main__":
    run()
