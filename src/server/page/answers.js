// The visible conversation: questions, each with one answer or two side by side.
import { make } from './dom.js';
import { bytes, count, percent, seconds } from './format.js';

class Answer {
  constructor(key) {
    this.key = key;
    this.heading = make('h3', '');
    this.text = make('p', 'text');
    this.text.dir = 'auto';
    this.reasoning = make('p', 'text');
    this.thinking = make('details', 'thinking', make('summary', '', 'Thinking'), this.reasoning);
    this.meter = make('i', '');
    this.facts = make('p', 'facts');
    this.earlier = make('ul', 'earlier');
    this.element = make('section', `answer ${key}`, this.heading, this.thinking, this.text,
      make('div', 'bar', this.meter), this.facts, this.earlier);
    this.done = false;
    this.begin('');
  }

  // Starts a new answer; a complete earlier one moves to the list below.
  begin(label) {
    if (this.done && !this.failed) {
      const line = make('li', '', make('span', '', this.heading.textContent), make('b', '', this.text.textContent || '(nothing)'));
      this.earlier.prepend(line);
      while (this.earlier.children.length > 6) this.earlier.lastChild.remove();
    }
    this.done = this.failed = this.stopped = false;
    this.heading.textContent = label;
    this.text.textContent = '';
    this.reasoning.textContent = '';
    this.thinking.hidden = true;
    this.facts.textContent = '';
    this.meter.style.width = '0';
    this.element.classList.remove('failed', 'stopped');
    this.element.classList.add('waits');
    this.text.setAttribute('aria-busy', 'true');
  }

  append(text) {
    this.element.classList.remove('waits');
    this.text.append(text);
  }

  think(text) {
    this.thinking.hidden = false;
    this.reasoning.append(text);
  }

  end() {
    this.done = true;
    this.element.classList.remove('waits');
    this.text.setAttribute('aria-busy', 'false');
  }

  fail(message) {
    this.failed = true;
    this.text.textContent = message;
    this.element.classList.add('failed');
    this.end();
  }

  stop() {
    this.stopped = true;
    this.element.classList.add('stopped');
    this.facts.textContent = 'Stopped.';
    this.end();
  }

  // `kv` and `timings` as the API gives them.
  finish({ kv, timings, finish }) {
    this.end();
    this.kv = kv;
    if (this.text.textContent.trim() === '') this.text.replaceChildren(make('em', '', 'an empty answer'));
    const facts = [];
    if (kv) {
      this.meter.style.width = percent(Math.min(1, kv.bytes / Math.max(1, kv.bytes_full))).replace('\u2009', '');
      facts.push(`${bytes(kv.bytes)} of cache`, `${count(kv.kept)} of ${count(kv.seen)} entries`);
    }
    if (timings) facts.push(seconds(timings.prompt_ms + timings.predicted_ms));
    if (finish === 'length') facts.push('cut at the maximum length');
    this.facts.replaceChildren(...facts.map((fact) => make('span', '', fact)));
  }
}

export class Turn {
  constructor(question, keys) {
    const asked = make('p', 'question', question);
    asked.dir = 'auto';
    this.question = question;
    this.answers = {};
    this.columns = make('div', 'answers');
    this.verdict = make('p', 'verdict');
    this.element = make('article', 'turn', asked, this.columns, this.verdict);
    keys.forEach((key) => this.answer(key));
  }

  // The answer in a column, which is added if it is missing. The full cache is first.
  answer(key) {
    if (!this.answers[key]) {
      this.answers[key] = new Answer(key);
      this.columns[key === 'full' ? 'prepend' : 'append'](this.answers[key].element);
      this.columns.classList.toggle('two', this.columns.children.length > 1);
    }
    return this.answers[key];
  }

  drop(key) {
    this.answers[key]?.element.remove();
    delete this.answers[key];
    this.columns.classList.toggle('two', this.columns.children.length > 1);
    this.judge();
  }

  // Says whether both answers are the same text.
  judge() {
    const { full, kept } = this.answers;
    const known = full?.done && kept?.done && ![full, kept].some((a) => a.failed || a.stopped) && kept.kv && full.kv;
    this.verdict.textContent = '';
    if (!known) return;
    const same = full.text.textContent.trim() === kept.text.textContent.trim();
    const share = percent(kept.kv.bytes / full.kv.bytes);
    this.verdict.className = `verdict ${same ? 'same' : 'differs'}`;
    this.verdict.textContent = same ? `Same answer with ${share} of the bytes` : `Different answer with ${share} of the bytes`;
  }
}

// Adds the turn below the others and keeps it in view as it grows, unless the user has scrolled away.
export function showTurn(turn, list, scroll) {
  list.append(turn.element);
  scroll.scrollTop = scroll.scrollHeight;
  const follow = new ResizeObserver(() => {
    const below = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    if (below < 160) scroll.scrollTop = scroll.scrollHeight;
  });
  follow.observe(turn.element);
}
