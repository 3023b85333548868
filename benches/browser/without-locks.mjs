// Runs something that believes to be in a browser without `navigator.locks`.
export async function withoutLocks(action) {
  Object.defineProperty(navigator, "locks", { value: undefined, configurable: true });
  try {
    return await action();
  } finally {
    delete navigator.locks;
  }
}
