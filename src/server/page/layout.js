// Positions of the words of a text: lines broken at words, with the widths of a canvas font. Draws nothing.

import { visible } from './format.js';

export const LINE = 27;  // height of a line, CSS pixels
const SERIF = '"Iowan Old Style", "Source Serif 4", "Noto Serif", Charter, Cambria, Georgia, serif';
export const FONT = `15.5px ${SERIF}`;
export const SMALL = '10.5px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const NEWLINE_WIDTH = 11;
const SPECIAL = /^<\|[^|]{1,40}\|>$|^<\/?s>$/;  // control tokens
const MAX_BLANK = 2;

// A cell is drawn as a unit: a token, or the tokens of one character.
export class Layout {
  constructor() {
    this.widths = new Map();
    this.context = document.createElement('canvas').getContext('2d');
    this.clear();
  }

  clear() {
    this.cells = [];   // { first, last, text, small, x, width, line }
    this.lines = [];   // [line] index of its first cell
    this.height = 0;
    this.mark = -1;    // line above which the document ends; -1: none
  }

  measure(text, small) {
    const key = small ? `\0${text}` : text;
    let width = this.widths.get(key);
    if (width === undefined) {
      this.context.font = small ? SMALL : FONT;
      width = this.context.measureText(text).width;
      if (this.widths.size > 50000) this.widths.clear();
      this.widths.set(key, width);
    }
    return width;
  }

  // A line does not begin with a space.
  trim(cell) {
    if (!/^ +\S/.test(cell.text)) return;
    const text = cell.text.trimStart();
    cell.width += this.measure(text, cell.small) - this.measure(cell.text, cell.small);
    cell.text = text;
  }

  // Requires: texts as the server sends them: a character of several tokens is at the last of them.
  build(texts, width, nDocument = 0) {
    this.clear();
    let x = 0, line = 0, word = 0, fresh = true;  // fresh: a word begins with the next cell
    let first = 0;
    const { cells } = this;
    const begin = (index) => {
      ++line;
      x = 0;
      while (this.lines.length <= line) this.lines.push(index);
    };
    this.lines.push(0);
    for (let token = 0; token < texts.length; ++token) {
      const raw = texts[token];
      if (raw === '' && token + 1 < texts.length) continue;  // part of the next one's character
      if (nDocument > 0 && first <= nDocument && token >= nDocument && this.mark < 0 && cells.length > 0) {
        begin(cells.length);
        begin(cells.length);  // room for the mark
        this.mark = line;
        fresh = true;
      }
      const small = SPECIAL.test(raw);
      const newlines = small ? 0 : raw.split('\n').length - 1;
      const text = visible(raw.replace(/\n/g, '').replace(/\t/g, '    '));
      const cell = { first, last: token, text, small, x: 0, width: 0, line, newline: newlines > 0 };
      cell.width = (text === '' ? 0 : this.measure(text, small)) + (newlines > 0 ? NEWLINE_WIDTH : 0) + (small ? 6 : 0);
      first = token + 1;
      if (fresh || small || /^\s/.test(raw)) word = cells.length;
      cells.push(cell);
      if (x + cell.width > width && x > 0 && text !== '') {  // spaces may overhang at the end of a line
        // The whole word moves to the next line, unless it fills this one.
        const from = word > this.lines[line] ? word : cells.length - 1;
        begin(from);
        this.trim(cells[from]);
        for (let i = from; i < cells.length; ++i) {
          cells[i].x = x;
          cells[i].line = line;
          x += cells[i].width;
        }
        if (from !== word) word = from;
      } else {
        cell.x = x;
        cell.line = line;
        x += cell.width;
      }
      fresh = small || /\s$/.test(raw);
      for (let n = 0; n < Math.min(newlines, MAX_BLANK); ++n) begin(cells.length);
    }
    this.height = (line + 1) * LINE;
  }

  // The cells of a line, [from, to).
  range(line) {
    const from = this.lines[line] ?? this.cells.length;
    const to = line + 1 < this.lines.length ? this.lines[line + 1] : this.cells.length;
    return [from, to];
  }

  // The cell at a point, or null.
  at(x, y) {
    const [from, to] = this.range(Math.floor(y / LINE));
    for (let i = from; i < to; ++i) {
      const cell = this.cells[i];
      if (x >= cell.x && x < cell.x + cell.width) return cell;
    }
    return null;
  }

  // The index of the cell that contains a token.
  indexOf(token) {
    let low = 0, high = this.cells.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.cells[middle].last < token) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

// Splits a text that is not read yet into pieces for Layout: words, long ones cut.
export function piecesOf(text) {
  const pieces = [];
  for (const match of text.matchAll(/\n|[^\S\n]*[^\s]{1,16}|[^\S\n]+/gu)) pieces.push(match[0].slice(-64));
  return pieces;
}
