"""Migration of the database at `HAREBELL_DATABASE_URL`, by `python -m harebell.storage`.

The user of the URL must own the database.
With `HAREBELL_ROLE_PASSWORD`, the service roles may log in with this password.
"""

import asyncio
import os
import sys

from harebell.storage.migrate import migrate

if __name__ == "__main__":
    if not (url := os.environ.get("HAREBELL_DATABASE_URL")):
        sys.exit("The setting HAREBELL_DATABASE_URL is required and missing.")
    asyncio.run(migrate(url, role_password=os.environ.get("HAREBELL_ROLE_PASSWORD")))
