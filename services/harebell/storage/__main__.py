"""Migration of the database at `HAREBELL_DATABASE_URL`, by `python -m harebell.storage`.

The user of the URL must own the database.
`HAREBELL_DATABASE_URL_FILE` names a file with the URL instead.
With `HAREBELL_MIGRATION_WAIT`, the migration waits for a database that does not answer.
With `HAREBELL_ROLE_PASSWORDS_FILE`, each role in this JSON object may log in with its password.
With `HAREBELL_ROLE_PASSWORD`, all other roles may log in with this one password.

`python -m harebell.storage new-epoch` begins an epoch of fencing tokens, after a restoration.
`python -m harebell.storage role-defaults` prints the SQL for services behind a pooler.
"""

import asyncio
import os
import sys
from urllib.parse import urlsplit

from harebell.contract.errors import DatabaseUnavailable, InvalidInput
from harebell.storage.engine import role_defaults
from harebell.storage.migrate import migrate_when_available
from harebell.storage.migration_settings import MigrationSettings
from harebell.storage.restoration import begin_epoch

NEW_EPOCH = "new-epoch"
ROLE_DEFAULTS = "role-defaults"

if __name__ == "__main__":
    try:
        settings = MigrationSettings.load(os.environ)
        match sys.argv[1:]:
            case []:
                asyncio.run(
                    migrate_when_available(
                        settings.database_url,
                        role_passwords=settings.role_passwords,
                        wait=settings.wait,
                    )
                )
            case [name] if name == NEW_EPOCH:
                epoch = asyncio.run(begin_epoch(settings.database_url))
                sys.stdout.write(f"The epoch of new fencing tokens is {epoch}.\n")
            case [name] if name == ROLE_DEFAULTS:
                database = urlsplit(settings.database_url).path.removeprefix("/")
                sys.stdout.write("".join(f"{each};\n" for each in role_defaults(database)))
            case _:
                sys.exit(f"The argument must be {NEW_EPOCH}, {ROLE_DEFAULTS} or nothing.")
    except InvalidInput as error:
        sys.exit(f"{error.field}: {error.reason}")
    except DatabaseUnavailable as error:
        sys.exit(f"The database is not available: {error.reason}")
