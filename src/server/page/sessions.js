// The page's sessions on the server. Each document and budget has one; questions go to forks of it, so
// that it stays unchanged.
import { call, getJson, postJson, stream, tab } from './api.js';
import { wellFormed } from './format.js';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let drawn = 0;
const mine = new Set();
const draw = () => `${tab}-${++drawn}`;

// Reads a document; `kv` are the API's kv_* fields. onProgress(done, all) in tokens times layers, as the server counts.
export async function read(text, kv, { signal, onProgress }) {
  const id = draw();
  mine.add(id);
  try {
    const response = await call('POST', 'v1/sessions', { body: { id, document: wellFormed(text), stream: true, ...kv }, signal });
    let last = null;
    for await (const event of stream(response)) {
      if (event.prompt_progress) onProgress?.(event.prompt_progress.processed, event.prompt_progress.total);
      else last = event;
    }
    if (last === null) throw new Error('The server ended the stream before the document was read.');
    return last;
  } catch (error) {
    dropLater(id);
    throw error;
  }
}

export async function fork(from, signal) {
  const id = draw();
  mine.add(id);
  return retryBusy(() => postJson(`v1/sessions/${from}/fork`, { id }, { signal }));
}

// A session stays busy for a moment after its answer is stopped.
export async function retryBusy(work) {
  for (let tries = 0; ; ++tries) {
    try {
      return await work();
    } catch (error) {
      if (error.code !== 'session_busy' || tries >= 40) throw error;
      await pause(50);
    }
  }
}

// The caller does not wait for it.
export function drop(id) {
  if (!id || !mine.delete(id)) return;
  retryBusy(() => call('DELETE', `v1/sessions/${id}`)).catch(() => {});
}

// As above, for a session whose work was stopped or refused: it may be busy for a moment, or not exist.
export async function dropLater(id) {
  if (!id) return;
  try {
    for (let tries = 0; tries < 40; ++tries) {
      const { data } = await getJson('v1/sessions');
      const found = data.find((session) => session.id === id);
      if (!found) break;
      if (!found.busy) return drop(id);
      await pause(100);
    }
    mine.delete(id);
  } catch { /* the server has ended, and its sessions too */ }
}

export const kept = (id, signal) => getJson(`v1/sessions/${id}/kept?by_head=1`, { signal });

// Events with the kept tokens of a session as they change.
export async function* watch(id, signal) {
  yield* stream(await retryBusy(() => call('GET', `v1/sessions/${id}/events`, { signal })));
}

// The server keeps sessions until they are deleted, so delete them with the page. A page shown again starts anew.
addEventListener('pagehide', () => {
  for (const id of mine) call('DELETE', `v1/sessions/${id}`, { keepalive: true }).catch(() => {});
});
addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); });
