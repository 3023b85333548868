// Wraps what the package calls of the browser: IndexedDB, messages, timers, Web Locks.
import { mark, wait } from "./sample.mjs";
import { spanned } from "./spans.mjs";

const REQUESTS = ["get", "getKey", "getAll", "getAllKeys", "put", "add", "delete", "clear", "count", "openCursor"];

export function hookPlatform(calls) {
  if (calls) hookCalls();
  else hookEvents();
}

// ---- Crossings: how long each call has the processor ----------------------------------------------------------------------

function hookCalls() {
  const calls = [
    [IDBDatabase.prototype, ["transaction"]],
    [IDBTransaction.prototype, ["objectStore", "commit", "abort"]],
    [IDBObjectStore.prototype, REQUESTS],
    [BroadcastChannel.prototype, ["postMessage", "close"]],
    [globalThis, ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "queueMicrotask"]],
    ...(globalThis.LockManager ? [[LockManager.prototype, ["request", "query"]]] : []),
  ];
  for (const [owner, names] of calls) {
    for (const name of names) owner[name] = spanned("browser", `${name}()`, owner[name]);
  }
}

// ---- Marks: when something is called, and when the browser answers --------------------------------------------------------

function hookEvents() {
  around(IDBDatabase.prototype, "transaction", hearTransaction);
  around(IDBTransaction.prototype, "commit", hearCommit);
  for (const name of REQUESTS) around(IDBObjectStore.prototype, name, (call) => hearRequest(name, call));
  around(BroadcastChannel.prototype, "postMessage", marked("postMessage()"));
  hearMessages();
  hearTimers();
  if (globalThis.LockManager) around(LockManager.prototype, "request", marked("locks.request()"));
}

function around(owner, name, change) {
  const native = owner[name];
  owner[name] = function (...args) {
    return change(() => native.apply(this, args), this);
  };
}

const marked = (name) => (call) => {
  mark(name);
  return call();
};

// For each transaction that was told to commit: the end of the wait for that.
const commits = new WeakMap();

function hearTransaction(call) {
  mark("transaction()");
  const [transaction, completed] = [call(), wait("transaction() to complete")];
  // Before anybody else hears of it.
  transaction.addEventListener("complete", () => {
    mark("complete");
    completed();
    commits.get(transaction)?.();
  });
  return transaction;
}

function hearCommit(call, transaction) {
  mark("commit()");
  commits.set(transaction, wait("commit() to complete"));
  return call();
}

function hearRequest(name, call) {
  mark(`${name}()`);
  const [request, answered] = [call(), wait(`${name}() to success`)];
  request.addEventListener("success", () => {
    mark(`success of ${name}()`);
    answered();
  });
  return request;
}

// The package sets `onmessage`; a channel without it hears nothing.
function hearMessages() {
  const native = Object.getOwnPropertyDescriptor(BroadcastChannel.prototype, "onmessage");
  const listen = () => mark("message");
  Object.defineProperty(BroadcastChannel.prototype, "onmessage", {
    ...native,
    set(listener) {
      // A listener that is added twice hears each message once.
      if (listener) this.addEventListener("message", listen);
      else this.removeEventListener("message", listen);
      native.set.call(this, listener);
    },
  });
}

function hearTimers() {
  const { setTimeout, clearTimeout } = globalThis;
  globalThis.setTimeout = (ring, ...rest) => {
    mark("setTimeout()");
    return setTimeout((...args) => {
      mark("timer");
      ring(...args);
    }, ...rest);
  };
  globalThis.clearTimeout = (id) => {
    mark("clearTimeout()");
    clearTimeout(id);
  };
}
