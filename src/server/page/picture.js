// The text, shaded by the share of KV heads that keep each token. Draws only visible lines, to be fast for long texts.
import { make, oncePerFrame, prefersStillness, prepareCanvas } from './dom.js';
import { count, percent, visible } from './format.js';
import { FONT, LINE, Layout, SMALL, piecesOf } from './layout.js';
import { Ramp } from './ramp.js';
import { Strip } from './strip.js';
import { Tokens } from './tokens.js';

const FADE_MS = 900;
const PAD = 18;  // padding of the text in its window

export class Picture {
  // scroller has spacer (as high as the text) and canvas (as large as the window); tip and spoken describe a token.
  constructor({ scroller, spacer, canvas, strip, tip, spoken }) {
    Object.assign(this, { scroller, spacer, canvas, tip, spoken });
    this.layout = new Layout();
    this.tokens = new Tokens();
    this.unread = false;   // the server has not read the text yet
    this.now = new Float32Array(0);  // the shares drawn, in transition
    this.from = this.now;
    this.goal = this.now;  // to here
    this.fadeStart = -1;
    this.cursor = -1;      // cell of the keyboard
    this.draw = oncePerFrame(() => this.paint());
    this.strip = new Strip(strip, (share) => this.seek(share));
    this.recolour();
    scroller.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.relayout()).observe(scroller);
    scroller.addEventListener('pointermove', (event) => this.hover(event));
    scroller.addEventListener('pointerleave', () => { tip.hidden = true; });
    scroller.addEventListener('keydown', (event) => this.onKey(event));
    scroller.addEventListener('blur', () => { this.cursor = -1; tip.hidden = true; this.draw(); });
    document.fonts?.ready.then(() => { this.layout.widths.clear(); this.relayout(); });
  }

  recolour() {
    this.ramp = new Ramp();
    this.strip.ramp = this.ramp;
    this.draw();
  }

  // A text before it is read.
  showText(text) {
    this.tokens = new Tokens();
    this.tokens.texts = piecesOf(text);
    this.unread = true;
    this.scroller.scrollTop = 0;
    this.setShares(new Float32Array(this.tokens.length), false);
    this.relayout();
  }

  // Sets other tokens, or other shares of the same tokens. `fade`: with a transition.
  show(tokens, { fade = false } = {}) {
    this.unread = false;
    this.tokens = tokens;
    const shown = tokens.shown();
    if (fade && this.goal.length !== shown.length) {
      // The text was just read: all entries were kept until the method decided.
      this.now = new Float32Array(shown.length).fill(1);
    }
    this.setShares(shown, fade);
    this.relayout();
  }

  setShares(goal, fade) {
    const fades = fade && !prefersStillness();
    this.from = new Float32Array(goal.length);
    for (let i = 0; i < goal.length; ++i) this.from[i] = fades && i < this.now.length ? this.now[i] : goal[i];
    this.goal = goal;
    this.now = Float32Array.from(this.from);
    this.fadeStart = fades ? performance.now() : -1;
    this.draw();
  }

  relayout() {
    const width = this.scroller.clientWidth - 2 * PAD;
    if (width <= 0) return;
    this.layout.build(this.tokens.texts, width, this.unread ? 0 : this.tokens.nDocument);
    this.spacer.style.height = `${this.layout.height + 2 * PAD}px`;
    this.draw();
  }

  seek(share) {
    const cell = this.layout.cells[this.layout.indexOf(Math.floor(share * this.tokens.length))];
    if (cell) this.scroller.scrollTop = cell.line * LINE - this.scroller.clientHeight / 2;
  }

  step() {
    if (this.fadeStart < 0) return;
    const t = Math.min(1, (performance.now() - this.fadeStart) / FADE_MS);
    const eased = t * t * (3 - 2 * t);
    for (let i = 0; i < this.goal.length; ++i) this.now[i] = this.from[i] + (this.goal[i] - this.from[i]) * eased;
    if (t >= 1) this.fadeStart = -1;
    else this.draw();
  }

  shareOf(cell) {
    let sum = 0;
    for (let i = cell.first; i <= cell.last; ++i) sum += this.now[i] ?? 0;
    return sum / (cell.last - cell.first + 1);
  }

  paint() {
    const { clientWidth: width, clientHeight: height, scrollTop } = this.scroller;
    if (width === 0 || height === 0) return;
    this.step();
    const context = prepareCanvas(this.canvas, width, height);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    context.direction = 'ltr';
    context.textBaseline = 'alphabetic';
    context.translate(PAD, PAD - scrollTop);
    const firstLine = Math.max(0, Math.floor((scrollTop - PAD) / LINE) - 1);
    const lastLine = Math.min(this.layout.lines.length - 1, Math.ceil((scrollTop + height) / LINE) + 1);
    for (let line = firstLine; line <= lastLine; ++line) {
      this.paintBacks(context, line);
      this.paintWords(context, line);
      if (line === this.layout.mark) this.paintMark(context, line, width - 2 * PAD);
    }
    if (this.cursor >= 0 && this.layout.cells[this.cursor]) {
      const cell = this.layout.cells[this.cursor];
      context.strokeStyle = this.ramp.ink;
      context.lineWidth = 2;
      context.strokeRect(cell.x - 1, cell.line * LINE + 2, cell.width + 2, LINE - 4);
    }
    this.paintStrip(scrollTop, height);
  }

  // Adjacent kept tokens join into one band with round ends.
  paintBacks(context, line) {
    const [from, to] = this.layout.range(line);
    const y = line * LINE + 3;
    const band = (begin, end) => {
      const { cells } = this.layout;
      const x = cells[begin].x;
      const right = cells[end - 1].x + cells[end - 1].width;
      context.save();
      context.beginPath();
      context.roundRect(x, y, right - x, LINE - 6, 4);
      context.clip();
      for (let i = begin; i < end; ++i) {
        context.fillStyle = this.ramp.back(this.shareOf(cells[i]));
        context.fillRect(cells[i].x, y, cells[i].width + 0.5, LINE - 6);
      }
      context.restore();
    };
    let begin = -1;
    for (let i = from; i < to; ++i) {
      const kept = this.ramp.level(this.shareOf(this.layout.cells[i])) > 0;
      if (kept && begin < 0) begin = i;
      if (!kept && begin >= 0) {
        band(begin, i);
        begin = -1;
      }
    }
    if (begin >= 0) band(begin, to);
  }

  paintWords(context, line) {
    const [from, to] = this.layout.range(line);
    const baseline = line * LINE + 19;
    for (let i = from; i < to; ++i) {
      const cell = this.layout.cells[i];
      context.fillStyle = this.unread ? this.ramp.faint : this.ramp.inks[this.ramp.level(this.shareOf(cell))];
      context.font = cell.small ? SMALL : FONT;
      if (cell.text) context.fillText(cell.text, cell.x + (cell.small ? 3 : 0), baseline - (cell.small ? 1 : 0));
      if (cell.newline && !this.unread) {
        context.font = SMALL;
        context.globalAlpha = 0.55;
        context.fillText('\u21b5', cell.x + cell.width - 9, baseline);
        context.globalAlpha = 1;
      }
    }
  }

  // Between the document and the questions.
  paintMark(context, line, width) {
    const y = line * LINE - LINE / 2;
    context.fillStyle = this.ramp.rule;
    context.fillRect(0, y, width, 1);
    context.font = '600 10.5px Inter, system-ui, sans-serif';
    const label = 'Question and answer';
    const labelWidth = context.measureText(label).width + 12;
    context.fillStyle = this.ramp.card;
    context.fillRect(0, y - 6, labelWidth, 12);
    context.fillStyle = this.ramp.faint;
    context.fillText(label, 0, y + 4);
  }

  paintStrip(scrollTop, height) {
    const { lines, cells } = this.layout;
    const tokenAt = (y) => {
      const line = Math.min(lines.length - 1, Math.max(0, Math.floor((y - PAD) / LINE)));
      return cells[Math.min(cells.length - 1, lines[line])]?.first ?? 0;
    };
    const n = Math.max(1, this.tokens.length);
    const atEnd = scrollTop + height >= this.layout.height;
    this.strip.values = this.now;
    this.strip.documentEnd = this.unread ? 0 : this.tokens.nDocument / n;
    this.strip.frame = [tokenAt(scrollTop) / n, atEnd ? 1 : tokenAt(scrollTop + height) / n];
    this.strip.draw();
  }

  // "lantern", token 512: kept by 18 of 28 heads.
  describe(cell) {
    const share = this.shareOf(cell);
    const { selected } = this.tokens;
    const place = cell.first === cell.last ? `token ${count(cell.first + 1)}` : `tokens ${count(cell.first + 1)} to ${count(cell.last + 1)}`;
    const nHeads = this.tokens.nHeads() || this.heads;
    let kept;
    if (this.unread) kept = 'not read yet';
    else if (selected?.head !== undefined) kept = share > 0.5 ? 'kept by this head' : 'not kept by this head';
    else if (selected) kept = `kept by ${percent(share)} of the heads of layer ${selected.layer + 1}`;
    else kept = nHeads > 0 ? `kept by ${count(share * nHeads)} of ${count(nHeads)} heads (${percent(share)})` : `kept by ${percent(share)} of the heads`;
    const text = this.tokens.texts.slice(cell.first, cell.last + 1).join('');
    return { text: text.trim() === '' ? text.replace(/ /g, '\u2423').replace(/\n/g, '\u21b5').replace(/\t/g, '\u21e5') : visible(text.trim()), place: this.unread ? '' : place, kept };
  }

  hover(event) {
    const box = this.scroller.getBoundingClientRect();
    const cell = this.layout.at(event.clientX - box.left - PAD, event.clientY - box.top - PAD + this.scroller.scrollTop);
    if (!cell) {
      this.tip.hidden = true;
      return;
    }
    this.showTip(cell, event.clientX, event.clientY);
  }

  showTip(cell, x, y) {
    const { text, place, kept } = this.describe(cell);
    this.tip.replaceChildren(make('strong', '', text), make('span', '', [place, kept].filter(Boolean).join(', ')));
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    this.tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
    this.tip.style.top = `${y + 20 + height > innerHeight ? y - height - 12 : y + 20}px`;
  }

  // Arrow keys move between tokens; up and down, between lines.
  onKey(event) {
    const { cells } = this.layout;
    if (cells.length === 0) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const lines = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step === undefined && lines === undefined) return;
    event.preventDefault();
    if (this.cursor < 0) {
      this.cursor = this.layout.range(Math.ceil(this.scroller.scrollTop / LINE))[0];
    } else if (step !== undefined) {
      this.cursor += step;
    } else {
      const here = cells[this.cursor];
      const [from, to] = this.layout.range(Math.max(0, here.line + lines));
      let best = from < to ? from : this.cursor + lines;
      for (let i = from; i < to; ++i) if (cells[i].x <= here.x + 1) best = i;
      this.cursor = best;
    }
    this.cursor = Math.max(0, Math.min(cells.length - 1, this.cursor));
    const cell = cells[this.cursor];
    const { clientHeight, scrollTop } = this.scroller;
    const y = cell.line * LINE + PAD;
    if (y < scrollTop + LINE || y > scrollTop + clientHeight - 2 * LINE) this.scroller.scrollTop = y - clientHeight / 2;
    const box = this.scroller.getBoundingClientRect();
    this.showTip(cell, box.left + PAD + cell.x, box.top + y - this.scroller.scrollTop + LINE / 2);
    const { text, place, kept } = this.describe(cell);
    this.spoken.textContent = `${text}, ${place}, ${kept}`;
    this.draw();
  }
}
