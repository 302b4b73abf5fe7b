// Human-readable numbers. A thin space separates number and unit.

const THIN = '\u2009';

export function bytes(n) {
  if (n < 1024) return `${n}${THIN}B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = n / 1024;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)}${THIN}${units[unit]}`;
}

export function percent(share) {
  const value = 100 * share;
  return `${value.toFixed(value > 0 && value < 9.95 ? 1 : 0)}${THIN}%`;
}

export const count = (n) => Math.round(n).toLocaleString('en-US');

export function seconds(ms) {
  return ms < 1000 ? `${Math.round(ms)}${THIN}ms` : `${(ms / 1000).toFixed(1)}${THIN}s`;
}

export function parameters(n) {
  if (!(n > 0)) return '';
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}${THIN}B parameters`;
  return `${(n / 1e6).toFixed(1)}${THIN}M parameters`;
}

// A text that is valid Unicode: JSON cannot carry half a surrogate pair.
export const wellFormed = (text) =>
  typeof text.toWellFormed === 'function' ? text.toWellFormed() : new TextDecoder().decode(new TextEncoder().encode(text));

// Shows invisible characters, and those that change how others are drawn, as code points.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
export const visible = (text) =>
  text.replace(UNSEEN, (c) => `\u27e8${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`);
