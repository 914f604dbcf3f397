#!/bin/sh
# Transactions in an SQLite database, without end or so many:
#
#   transactions FILE JOURNAL_MODE [COUNT]
#
# Each is a new entry, the removal of one that is 200 transactions old, and a transfer between two
# accounts; 'ack N' is printed when transaction N is committed, numbers from 0 on.
# What an entry must hold, and the accounts, follow from the numbers (see check.sql).
#
# JOURNAL_MODE: wal, truncate or persist. In mode delete, SQLite itself does not promise with
# synchronous=FULL that a power cut leaves what was committed: the journal's removal is not synced.
file=$1 mode=$2 count=$3 keep=200

statements() {
    cat <<END
PRAGMA journal_mode = $mode;
PRAGMA synchronous = FULL;
CREATE TABLE entries (number INTEGER PRIMARY KEY, content TEXT);
CREATE INDEX entries_by_content ON entries (content);
CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, moves INTEGER);
WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < 96)
    INSERT INTO accounts SELECT id, 0, 0 FROM ids;
END
    number=0
    while [ "$number" != "$count" ]; do
        from=$((number % 97)) to=$((number * 7 % 97))
        # In one line: what was printed leaves the shell of SQLite between lines.
        echo "BEGIN IMMEDIATE;" \
            "INSERT INTO entries VALUES ($number, substr(replace(hex(zeroblob(48)), '00'," \
            "hex(sha3($number, 256))), 1, 64 + $number * 389 % 3000));" \
            "DELETE FROM entries WHERE number <= $((number - keep));" \
            "UPDATE accounts SET balance = balance - $number, moves = moves + 1 WHERE id = $from;" \
            "UPDATE accounts SET balance = balance + $number, moves = moves + 1 WHERE id = $to;" \
            "COMMIT; SELECT 'ack $number';"
        number=$((number + 1))
    done
}

statements | sqlite3 -batch -bail "$file"
