// The tokens of a session: their texts, and which KV heads keep them.

export class Tokens {
  constructor() {
    this.texts = [];
    this.share = [];      // of all layers' KV heads, those that keep a token, 0 to 1
    this.heads = null;    // { layers, perLayer, positions: [layer * perLayer + head] -> ascending }
    this.selected = null; // null: all heads; { layer, head } or { layer }
    this.nDocument = 0;   // tokens of the document; questions and answers follow
  }

  get length() { return this.texts.length; }

  // An event of /v1/sessions/ID/events.
  apply({ texts_from: from = 0, texts = [], changes = [] }) {
    this.texts.length = Math.min(this.texts.length, from);
    for (const text of texts) this.texts.push(text);
    for (const { at, share } of changes) {
      for (let i = 0; i < share.length; ++i) this.share[at + i] = share[i];
    }
  }

  // The response of /v1/sessions/ID/kept?by_head=1.
  setHeads(kept) {
    this.heads = kept && { layers: kept.n_layers, perLayer: kept.n_kv_heads, positions: kept.by_head };
    if (this.heads) this.texts = kept.texts;
    if (this.heads) this.share = kept.share;
  }

  nHeads() { return this.heads ? this.heads.layers * this.heads.perLayer : 0; }

  // The share that shades each token: of all heads, of a layer's heads, or of one head (0 or 1).
  shown() {
    const out = new Float32Array(this.length);
    if (!this.selected || !this.heads) {
      for (let i = 0; i < out.length; ++i) out[i] = this.share[i] ?? 0;
      return out;
    }
    const { layers, perLayer, positions } = this.heads;
    const { layer, head } = this.selected;
    if (layer >= layers) return out;
    const heads = head === undefined ? Array.from({ length: perLayer }, (_, h) => h) : [head];
    for (const h of heads) {
      for (const position of positions[layer * perLayer + h]) {
        if (position < out.length) out[position] += 1 / heads.length;
      }
    }
    return out;
  }
}

// Means of adjacent values in `n` bins: [bin] 0 to 1.
export function binned(values, n) {
  const out = new Float32Array(n);
  for (let bin = 0; bin < n; ++bin) {
    const first = Math.floor(bin * values.length / n);
    const last = Math.max(first + 1, Math.floor((bin + 1) * values.length / n));
    let sum = 0;
    for (let i = first; i < last && i < values.length; ++i) sum += values[i];
    out[bin] = sum / (last - first);
  }
  return out;
}

// The same for a head, from its kept positions, ascending, of `length` tokens.
export function binnedPositions(positions, length, n) {
  const counts = new Float32Array(n);
  for (const position of positions) counts[Math.min(n - 1, Math.floor(position * n / length))] += 1;
  const perBin = length / n;
  for (let bin = 0; bin < n; ++bin) counts[bin] = Math.min(1, counts[bin] / Math.max(perBin, 1));
  return counts;
}
