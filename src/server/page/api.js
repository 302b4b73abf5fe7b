// The server's HTTP API. Streams are read by fetch, because EventSource cannot send an API key.

export class ApiError extends Error {
  constructor(message, { status = 0, code = '' } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Identifies this tab: the prefix of its sessions, by which a proxy sends all its requests to one of several servers.
export const tab = `page-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (b) => b.toString(16).padStart(2, '0')).join('')}`;

const KEY = 'winnow-key';
const read = () => { try { return sessionStorage.getItem(KEY) || ''; } catch { return ''; } };
let key = read();

// Asks the user for a key; set by the page. Resolves to the key, or to null if the user cancels.
let askForKey = async () => null;
let asking = null;  // several requests refused at the same time ask only once
export function setKeyPrompt(prompt) { askForKey = prompt; }

async function newKey() {
  asking ??= askForKey(key !== '').finally(() => { asking = null; });
  const given = await asking;
  if (given === null) return false;
  key = given;
  try { sessionStorage.setItem(KEY, key); } catch { /* kept only until the page closes */ }
  return true;
}

// Relative to the page's address, so that a proxy may serve it under any path.
const address = (path) => new URL(path.replace(/^\//, ''), document.baseURI);

async function errorOf(response) {
  let message = '';
  let code = '';
  try {
    const { error } = await response.json();
    message = error?.message ?? '';
    code = error?.code ?? '';
  } catch { /* not JSON: the response is from a proxy */ }
  return new ApiError(message || `The server answered ${response.status} ${response.statusText}.`, { status: response.status, code });
}

// Returns the response if the request succeeds. Otherwise throws ApiError, or AbortError if `signal` aborts.
export async function call(method, path, { body, signal, keepalive = false } = {}) {
  for (;;) {
    const used = key;
    const headers = { 'x-session': tab };
    if (used) headers.authorization = `Bearer ${used}`;
    if (body !== undefined) headers['content-type'] = 'application/json';
    let response;
    try {
      response = await fetch(address(path), {
        method, headers, signal, keepalive, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError('The server does not answer. Is it still running?', { code: 'unreachable' });
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await errorOf(response);
    if (keepalive || (used === key && !(await newKey()))) throw await errorOf(response);
  }
}

export const getJson = async (path, options) => (await call('GET', path, options)).json();
export const postJson = async (path, body, options) => (await call('POST', path, { body, ...options })).json();

// Yields the objects of an event stream until it ends. Throws an object with an error.
export async function* stream(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];  // of an event that is not complete yet
  try {
    for (;;) {
      let chunk;
      try {
        chunk = await reader.read();
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiError('The connection to the server broke off.', { code: 'unreachable' });
      }
      if (chunk.done) return;
      // A large event is mostly one long line: search only the new part, to stay linear.
      const pieces = ((parts.at(-1)?.endsWith('\n') ? parts.pop() : '') + chunk.value).split('\n\n');
      for (const piece of pieces.slice(0, -1)) {
        parts.push(piece);
        const event = parts.join('');
        parts = [];
        const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
        if (!data || data === '[DONE]') continue;
        const value = JSON.parse(data);
        if (value.error) throw new ApiError(value.error.message, { code: value.error.code ?? '' });
        yield value;
      }
      parts.push(pieces.at(-1));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
