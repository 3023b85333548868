// A page that hangs, as one does that a debugger has paused: to be loaded before the page opens a database.
globalThis.hang = hang;

const open = new Set();
const begin = IDBDatabase.prototype.transaction;
IDBDatabase.prototype.transaction = function (...args) {
  const transaction = begin.apply(this, args);
  open.add(transaction);
  for (const end of ["complete", "abort"]) transaction.addEventListener(end, () => open.delete(transaction));
  return transaction;
};

// Hangs for this long, from a moment on at which the page has no transaction open: with one it would keep all others from the
// database. It often has one when the driver has just shown the page, whose leases are in doubt then. Brings when the hang ended.
async function hang(ms) {
  // Once at least: the driver's script is to end first.
  do await new Promise((resolve) => setTimeout(resolve));
  while (open.size > 0);
  const until = (globalThis.hungUntil = Date.now() + ms);
  while (Date.now() < until);
  return until;
}
