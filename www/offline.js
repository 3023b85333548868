// The page's service worker: what it needs is kept for when there is no network. Where there is one, what it has is newer.
const CACHE = "leasehold-demo";
const FILES = [
  "./",
  "counter.mjs",
  "history.mjs",
  "icon.svg",
  "inspector.mjs",
  "keys.mjs",
  "names.mjs",
  "page.mjs",
  "style.css",
  "telling.mjs",
  "timeline.mjs",
  "view.mjs",
  "pkg/index.mjs",
  "pkg/leasehold_bg.wasm",
];
const urls = FILES.map((file) => new URL(file, self.registration.scope).href);

async function keep() {
  const cache = await caches.open(CACHE);
  await cache.addAll(urls);
  await self.skipWaiting();
}

async function answer(request) {
  try {
    const response = await fetch(request);
    if (response.ok) await (await caches.open(CACHE)).put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await caches.match(request);
    if (!kept) throw error;
    return kept;
  }
}

self.addEventListener("install", (event) => event.waitUntil(keep()));
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  // The rest of this origin is not the page's.
  if (urls.includes(event.request.url)) event.respondWith(answer(event.request));
});
