// Small multiples: a strip for each KV head of each layer. A selected strip or layer shades the text.
import { make, prepareCanvas } from './dom.js';
import { count } from './format.js';
import { binnedPositions } from './tokens.js';

const HEIGHT = 16;

export class HeadGrid {
  // onSelect(null | {layer} | {layer, head}).
  constructor(root, onSelect) {
    this.root = root;
    this.onSelect = onSelect;
    this.selected = null;
    this.shape = '';
    root.addEventListener('keydown', (event) => this.onKey(event));
    new ResizeObserver(() => this.paint()).observe(root);
  }

  show(tokens, ramp) {
    this.tokens = tokens;
    this.ramp = ramp;
    const heads = tokens.heads;
    if (!heads) return;
    const shape = `${heads.layers}x${heads.perLayer}`;
    if (shape !== this.shape) this.build(heads);
    this.shape = shape;
    this.mark();
    this.paint();
  }

  build({ layers, perLayer }) {
    const button = (className, label, choice) => {
      const element = make('button', className);
      element.type = 'button';
      element.setAttribute('aria-label', label);
      element.tabIndex = -1;
      element.addEventListener('click', () => this.select(choice));
      return element;
    };
    this.buttons = [];  // [row][column]; column 0 is the layer
    this.root.replaceChildren();
    this.root.style.setProperty('--columns', perLayer);
    this.root.append(make('span', 'corner', 'Layer'));
    for (let head = 0; head < perLayer; ++head) {
      this.root.append(make('span', 'head-name', perLayer <= 8 ? `Head ${head + 1}` : String(head + 1)));
    }
    for (let layer = 0; layer < layers; ++layer) {
      const name = button('layer', `Layer ${layer + 1}, all its heads`, { layer });
      name.append(String(layer + 1));
      const row = [name];
      for (let head = 0; head < perLayer; ++head) {
        const cell = button('head', '', { layer, head });
        cell.append(document.createElement('canvas'));
        row.push(cell);
      }
      this.buttons.push(row);
      this.root.append(...row);
    }
    this.buttons[0][0].tabIndex = 0;
  }

  // Selecting the same item again deselects it.
  select(choice) {
    const same = this.selected && choice && this.selected.layer === choice.layer && this.selected.head === choice.head;
    this.selected = same ? null : choice;
    this.mark();
    this.onSelect(this.selected);
  }

  mark() {
    this.buttons?.forEach((row, layer) => row.forEach((button, column) => {
      const { selected } = this;
      const pressed = selected?.layer === layer && (column === 0 ? selected.head === undefined : selected.head === column - 1);
      button.setAttribute('aria-pressed', String(Boolean(pressed)));
    }));
  }

  paint() {
    const heads = this.tokens?.heads;
    if (!heads || this.root.clientWidth === 0 || !this.buttons) return;
    const length = Math.max(1, this.tokens.length);
    this.buttons.forEach((row, layer) => row.slice(1).forEach((cell, head) => {
      const positions = heads.positions[layer * heads.perLayer + head] ?? [];
      cell.setAttribute('aria-label', `Layer ${layer + 1}, head ${head + 1}: keeps ${count(positions.length)} of ${count(length)} tokens`);
      cell.title = cell.getAttribute('aria-label');
      const canvas = cell.firstElementChild;
      const width = canvas.clientWidth;
      if (width === 0) return;
      const context = prepareCanvas(canvas, width, HEIGHT);
      const n = Math.min(Math.floor(width), length);
      binnedPositions(positions, length, n).forEach((share, bin) => {
        if (share === 0) return;
        context.fillStyle = this.ramp.back(0.18 + 0.82 * share);  // keeps a single entry visible
        context.fillRect(bin * width / n, 0, width / n + 0.5, HEIGHT);
      });
    }));
  }

  onKey(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !this.buttons) return;
    const row = this.buttons.findIndex((buttons) => buttons.includes(document.activeElement));
    if (row < 0) return;
    event.preventDefault();
    const column = this.buttons[row].indexOf(document.activeElement);
    const next = this.buttons[row + step[0]]?.[column + step[1]];
    if (!next) return;
    document.activeElement.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
