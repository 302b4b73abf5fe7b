// The controls around chat and picture: theme, tabs on small screens, API key, budget.
import { $, make } from './dom.js';

const THEMES = ['', 'light', 'dark'];
const THEME_NAMES = { '': 'as the system', light: 'light', dark: 'dark' };

export function setUpTheme(onChange) {
  const root = document.documentElement;
  const show = () => {
    const label = `Theme: ${THEME_NAMES[root.dataset.theme ?? '']}`;
    $('theme').title = label;
    $('theme-name').textContent = label;
    onChange();
  };
  $('theme').addEventListener('click', () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? '') + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try { localStorage.setItem('winnow-theme', next); } catch { /* kept only until the page closes */ }
    show();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  show();
}

export function setUpTabs() {
  const choose = (tab) => {
    document.body.dataset.tab = tab;
    for (const name of ['chat', 'picture']) $(`tab-${name}`).setAttribute('aria-pressed', String(name === tab));
  };
  for (const name of ['chat', 'picture']) $(`tab-${name}`).addEventListener('click', () => choose(name));
  return choose;
}

// Asks for the API key; resolves to null if the user cancels.
export function askForKey(wasWrong) {
  const dialog = $('key-dialog');
  $('key-text').textContent = wasWrong ? 'The server refused that key. Try another one.'
    : 'It is sent to this server only, and forgotten when the tab is closed.';
  $('key').value = '';
  dialog.showModal();
  return new Promise((resolve) => {
    let given = null;
    const take = () => { given = $('key').value.trim() || null; };
    const cancel = () => dialog.close();
    $('key-form').addEventListener('submit', take, { once: true });
    $('key-cancel').addEventListener('click', cancel, { once: true });
    dialog.addEventListener('close', () => {
      $('key-form').removeEventListener('submit', take);
      $('key-cancel').removeEventListener('click', cancel);
      resolve(given);
    }, { once: true });
  });
}

// The budgets of the slider, shares of the text in percent. 100 is the full cache.
const BUDGETS = [1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 75, 100];
const FIRST = 10;
const WAIT_MS = 350;  // before a slider moved by keys takes effect

export class Budget {
  // onChange(): the method or the budget has changed.
  constructor(onChange) {
    this.methods = new Map();
    this.slider = $('budget');
    this.slider.max = BUDGETS.length - 1;
    this.slider.value = BUDGETS.indexOf(FIRST);
    let timer = 0;
    this.slider.addEventListener('input', () => {
      this.show();
      clearTimeout(timer);
      timer = setTimeout(onChange, WAIT_MS);
    });
    $('method').addEventListener('change', () => {
      this.show();
      onChange();
    });
    this.show();
  }

  // `methods`: the list of /v1/methods. `preferred`: the server's default.
  fill(methods, preferred) {
    this.methods = new Map(methods.filter(({ id }) => id !== 'full').map((method) => [method.id, method]));
    $('method').replaceChildren(...[...this.methods.values()].map(({ id, summary }) => {
      const option = make('option', '', `${id}: ${summary}`);
      option.value = id;
      return option;
    }));
    const first = [preferred, 'winnow', methods[0]?.id].find((id) => this.methods.has(id));
    if (first) $('method').value = first;
    $('method').disabled = this.slider.disabled = false;
    this.show();
  }

  get method() { return this.methods.get($('method').value); }
  get percent() { return BUDGETS[Number(this.slider.value)]; }
  get findsItsOwn() { return this.method?.needs_budget === false; }
  get isFull() { return !this.findsItsOwn && this.percent === 100; }

  // Fields of the API.
  kv() {
    const { method } = this;
    if (this.findsItsOwn) return { kv_method: method.id };
    return { kv_method: method.id, kv_ratio: this.percent / 100 };
  }
  name() {
    return this.findsItsOwn ? this.method.id : `${this.percent}\u2009%, ${this.method?.id ?? ''}`;
  }

  show() {
    const text = this.findsItsOwn ? 'its own size' : this.isFull ? 'full cache' : `${this.percent}\u2009%`;
    $('budget-value').textContent = text;
    this.slider.setAttribute('aria-valuetext', text);
    this.slider.style.setProperty('--at', `${100 * Number(this.slider.value) / (BUDGETS.length - 1)}%`);
    if (this.method) $('method').title = `${this.method.summary} (${this.method.source})`;
    if (this.methods.size > 0) this.slider.disabled = this.findsItsOwn;
  }
}
