"""Migration of the database at `HAREBELL_DATABASE_URL`, by `python -m harebell.storage`.

The user of the URL must own the database.
With `HAREBELL_ROLE_PASSWORDS_FILE`, each role in this JSON object may log in with its password.
With `HAREBELL_ROLE_PASSWORD`, all other roles may log in with this one password.
"""

import asyncio
import os
import sys

from harebell.contract.errors import InvalidInput
from harebell.storage.migrate import migrate
from harebell.storage.role_passwords import read_role_passwords

if __name__ == "__main__":
    if not (url := os.environ.get("HAREBELL_DATABASE_URL")):
        sys.exit("The setting HAREBELL_DATABASE_URL is required and missing.")
    try:
        passwords = read_role_passwords(os.environ)
    except InvalidInput as error:
        sys.exit(f"{error.field}: {error.reason}")
    asyncio.run(migrate(url, role_passwords=passwords))
