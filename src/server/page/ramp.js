// The colors of a share, from paper to wheat, and the most readable ink on each. The stops are the custom
// properties --kept-0 to --kept-4 of base.css.

const LEVELS = 64;
const hex = (text) => [1, 3, 5].map((at) => parseInt(text.trim().slice(at, at + 2), 16));
const mix = (a, b, t) => a.map((v, i) => v + (b[i] - v) * t);
const css = (c) => `rgb(${c.map(Math.round).join(' ')})`;

// Relative luminance and contrast of WCAG 2.
function luminance(c) {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

export class Ramp {
  // Reads the page's colors; created again when the theme changes.
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => hex(style.getPropertyValue(name));
    const stops = [0, 1, 2, 3, 4].map((i) => colour(`--kept-${i}`));
    const [ink, faint, dark, light] = ['--ink', '--faint', '--on-wheat', '--on-dark'].map(colour);
    this.faint = css(faint);
    this.ink = css(ink);
    this.rule = css(colour('--rule'));
    this.card = css(stops[0]);
    this.backs = [];
    this.inks = [];
    for (let level = 0; level <= LEVELS; ++level) {
      const at = level / LEVELS * 4;
      const low = Math.min(3, Math.floor(at));
      const back = mix(stops[low], stops[low + 1], at - low);
      const grown = mix(faint, ink, Math.min(1, level / LEVELS * 2.5));
      const inks = [grown, ink, light, dark];
      const good = inks.find((c) => contrast(c, back) >= 4.5);
      this.backs.push(css(back));
      this.inks.push(css(good ?? (contrast(light, back) > contrast(dark, back) ? light : dark)));
    }
  }

  level(share) { return Math.round(Math.min(1, Math.max(0, share)) * LEVELS); }
  back(share) { return this.backs[this.level(share)]; }
}
