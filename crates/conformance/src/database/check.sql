/* What `transactions` has left, one value a line: the judgement of SQLite, the first, the last and
   the count of entries, those whose content is wrong, the sum of all accounts, and all moves. */
PRAGMA integrity_check;
SELECT ifnull(min(number), 0) FROM entries;
SELECT ifnull(max(number), -1) FROM entries;
SELECT count(*) FROM entries;
SELECT count(*) FROM entries WHERE content <>
    substr(replace(hex(zeroblob(48)), '00', hex(sha3(number, 256))), 1, 64 + number * 389 % 3000);
SELECT sum(balance) FROM accounts;
SELECT sum(moves) FROM accounts;
