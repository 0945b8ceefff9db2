"""`python -m graftline`."""

from graftline.cli.app import main

if __name__ == "__main__":
    main()
