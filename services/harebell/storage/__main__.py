"""`python -m harebell.kernel.db`: migrate the database of HAREBELL_DATABASE_URL, as its owner."""

import asyncio
import os
import sys

from harebell.storage.migrate import migrate

if __name__ == "__main__":
    if not (url := os.environ.get("HAREBELL_DATABASE_URL")):
        sys.exit("HAREBELL_DATABASE_URL is not set")
    asyncio.run(migrate(url, role_password=os.environ.get("HAREBELL_ROLE_PASSWORD")))
