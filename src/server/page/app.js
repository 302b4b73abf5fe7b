// Connects the parts: the document is read under two budgets, questions go to both, the picture follows one.
import { call, getJson, setKeyPrompt } from './api.js';
import { Turn, showTurn } from './answers.js';
import { Side } from './asking.js';
import { Budget, askForKey, setUpTabs, setUpTheme } from './controls.js';
import { $, make } from './dom.js';
import { bytes, count, parameters, percent } from './format.js';
import { HeadGrid } from './heads.js';
import { setUpIntake } from './intake.js';
import { Picture } from './picture.js';
import * as sessions from './sessions.js';
import { Tokens } from './tokens.js';

const picture = new Picture({
  scroller: $('scroller'), spacer: $('spacer'), canvas: $('text'), strip: $('strip'), tip: $('tip'), spoken: $('spoken'),
});
const heads = new HeadGrid($('heads'), onSelect);
const budget = new Budget(onBudget);
const chooseTab = setUpTabs();
setUpTheme(() => {
  picture.recolour();
  if (headsOpen()) heads.show(picture.tokens, picture.ramp);
});
setKeyPrompt(askForKey);
const intake = setUpIntake({ onText: readDocument, onProblem: problem });

let text = '';           // of the document; empty: chat without a document
let sides = {};          // full, kept: both, or one of them
let plain = new Side('plain', 'Answer', {});
let turns = [];
let reading = null;      // AbortController of the reading
let answering = null;    // AbortController of the answers
let watching = null;     // AbortController of the picture's events
let ready = false;

function problem(message) {
  $('problem-text').textContent = message;
  $('problem').hidden = !message;
}
$('problem-close').addEventListener('click', () => problem(''));

function update() {
  const busy = Boolean(reading || answering);
  $('send').hidden = Boolean(answering);
  $('stop').hidden = !answering;
  $('send').disabled = !ready || busy || $('question').value.trim() === '';
  $('intake').hidden = Boolean(text) || turns.length > 0;
  $('document').hidden = !text && turns.length === 0;
  $('empty').hidden = picture.tokens.length > 0;
  $('picture').classList.toggle('blank', picture.tokens.length === 0 || picture.unread);
  // Every head of a full cache keeps every token.
  $('heads-toggle').disabled = !sides.kept?.base;
  if ($('heads-toggle').disabled && !reading && headsOpen()) showHeads(false);
  $('reading').hidden = !reading;
  $('chips').hidden = !shownSide()?.base || $('chips').children.length === 0;
  for (const chip of $('chips').children) chip.disabled = busy || !ready;
  for (const id of ['example', 'file', 'read']) $(id).disabled = !ready || busy || (id === 'read' && $('paste').value.trim() === '');
}

// --- The document ---

const shownSide = () => sides.kept ?? sides.full;

async function readDocument(newText, name, questions) {
  if (!ready || reading || answering) return;
  reset();
  text = newText;
  $('document-name').textContent = name;
  $('document-size').textContent = `${count(text.length)} characters`;
  $('chips').replaceChildren(...questions.map((question) => {
    const chip = make('button', 'chip', question);
    chip.type = 'button';
    chip.addEventListener('click', () => ask(question));
    return chip;
  }));
  // The example's answers are short, but with a small budget they may not end.
  if (!$('max-tokens').dataset.chosen) $('max-tokens').value = questions.length > 0 ? 48 : 256;
  picture.showText(text);
  if (await readSides()) $('question').focus({ preventScroll: true });
  else if (changes === 0) giveUp();  // otherwise another budget is to be read
}

// Reading failed on all sides: return to the start, with the text and the reason.
function giveUp() {
  if (!sides.full?.base && !sides.kept?.base) {
    $('paste').value = text.length < 1e6 ? text : '';
    const why = $('problem-text').textContent;
    reset();
    problem(why);
  }
}

function newSides() {
  const wanted = {};
  if (budget.isFull || $('compare').checked) wanted.full = () => new Side('full', 'Full cache', { kv_method: 'full' });
  if (!budget.isFull) wanted.kept = () => new Side('kept', budget.name(), budget.kv());
  return wanted;
}

// Reads the document for each side that has not read it yet. False: stopped, or every side failed.
async function readSides() {
  const wanted = newSides();
  for (const key of ['full', 'kept']) {
    if (wanted[key] && sides[key] && (key === 'full' || sides[key].name === budget.name()) && sides[key].base) continue;
    sides[key]?.close();
    delete sides[key];
    if (wanted[key]) sides[key] = wanted[key]();
  }
  reading = new AbortController();
  update();
  let good = false;
  try {
    for (const side of Object.values(sides)) {
      if (side.base) continue;
      const what = side.key === 'full' ? 'Reading with a full cache' : `Reading with ${side.name}`;
      $('reading-text').textContent = what;
      $('progress').value = 0;
      try {
        await side.read(text, { signal: reading.signal, onProgress: (done, all) => { $('progress').value = done / all; } });
        $('document-size').textContent = `${count(side.base.n_tokens)} tokens`;
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        side.error = error.message;
        problem(error.message);
        continue;
      }
    }
    good = Object.values(sides).some((side) => side.base);
  } catch (error) {
    if (error.name !== 'AbortError') problem(error.message);
  }
  reading = null;
  // A side whose reading was stopped cannot answer; one that was refused shows the reason.
  for (const side of Object.values(sides)) if (!side.base && !side.error) delete sides[side.key];
  const side = shownSide();
  if (side?.base) watch(side.base.id, { fade: true });
  update();
  return good;
}

function reset() {
  for (const side of Object.values(sides)) side.close();
  sides = {};
  plain = new Side('plain', 'Answer', {});
  turns = [];
  text = '';
  watching?.abort();
  problem('');
  $('turns').replaceChildren();
  $('chips').replaceChildren();
  heads.selected = null;
  picture.show(new Tokens());
  showBytes(null);
  describeSelection();
  update();
}

$('another').addEventListener('click', () => {
  reading?.abort();
  answering?.abort();
  reset();
  intake.clear();
  $('paste').focus();
});
$('reading-stop').addEventListener('click', () => reading?.abort());

// --- Method and budget ---

let settled = Promise.resolve();  // changes of the budget run one after another
let changes = 0;                  // not read yet
async function onBudget() {
  if (!text || Object.keys(sides).length === 0) return;
  const wanted = newSides();
  const asTheyAre = ['full', 'kept'].every((key) => Boolean(wanted[key]) === Boolean(sides[key])) && (sides.kept?.name ?? budget.name()) === budget.name();
  if (asTheyAre) return;  // the slider moved back, or before the text was read
  ++changes;
  reading?.abort();
  answering?.abort();
  const mine = settled = settled.then(async () => {
    while (answering || reading) await new Promise((resolve) => setTimeout(resolve, 20));
    --changes;
    if (mine !== settled || !text) return;  // the slider has moved again, or there is another text
    problem('');
    const good = await readSides();
    if (!good && changes === 0) giveUp();
    if (!good || turns.length === 0) return;
    const turn = turns.at(-1);
    const missing = Object.values(sides).filter((side) => side.key === 'kept' || !turn.answers[side.key]);
    if (!sides.kept) turn.drop('kept');
    if (!sides.full) turn.drop('full');
    await answer(turn, missing);
  });
}
$('compare').addEventListener('change', onBudget);

// --- Questions ---

async function ask(question) {
  if (!ready || reading || answering) return;
  const asked = text ? Object.values(sides) : [plain];
  if (asked.length === 0) return;
  for (const chip of [...$('chips').children]) if (chip.textContent === question) chip.remove();
  const turn = new Turn(question, asked.map((side) => side.key));
  turns.push(turn);
  if (!text) $('document-name').textContent = 'No text';
  if (!text) $('document-size').textContent = 'the model answers by itself';
  showTurn(turn, $('turns'), $('scroll'));
  await answer(turn, asked);
}

async function answer(turn, asked) {
  answering = new AbortController();
  update();
  const options = {
    alone: $('alone').checked,
    maxTokens: Math.max(1, Math.floor(Number($('max-tokens').value)) || 256),
    temperature: Math.min(2, Math.max(0, Number($('temperature').value) || 0)),
    signal: answering.signal,
  };
  await Promise.all(asked.map((side) => side.ask(turn.question, turn.answer(side.key), {
    ...options,
    alone: side.key !== 'plain' && options.alone,
    onTalk: (id) => { if (side === shownSide()) watch(id); },
  })));
  turn.judge();
  answering = null;
  if (headsOpen()) loadHeads();
  update();
}

$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const question = $('question').value.trim();
  if ($('send').disabled || question === '') return;
  $('question').value = '';
  fitQuestion();
  ask(question);
});
$('question').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $('composer').requestSubmit();
});
function fitQuestion() {
  const field = $('question');
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight + 2, 180)}px`;
  update();
}
$('question').addEventListener('input', fitQuestion);
$('paste').addEventListener('input', update);
$('max-tokens').addEventListener('input', () => { $('max-tokens').dataset.chosen = 'yes'; });
$('stop').addEventListener('click', () => answering?.abort());

// --- The picture ---

function showBytes(kv) {
  const known = kv && kv.bytes !== null;  // not for a session on disk
  const share = known ? Math.min(1, kv.bytes / Math.max(1, kv.bytes_full)) : 0;
  $('share').textContent = known ? percent(share) : '';
  $('bar').style.width = `${100 * share}%`;
  const parts = kv && !known ? ['On disk.'] : kv ? [make('strong', '', bytes(kv.bytes)), ` now, ${bytes(kv.bytes_full)} in full`] : ['The cache is empty.'];
  $('bytes').replaceChildren(...parts);
}

// Follows a session's events.
async function watch(id, { fade = false } = {}) {
  watching?.abort();
  const mine = watching = new AbortController();
  watchedId = id;
  const tokens = new Tokens();
  tokens.selected = picture.tokens.selected;
  tokens.nDocument = shownSide()?.base?.n_tokens ?? 0;
  let first = true;
  try {
    for await (const event of sessions.watch(id, mine.signal)) {
      if (mine !== watching) return;
      if (event.deleted) return;
      showBytes(event.session.kv);
      tokens.apply(event);
      picture.heads = kvHeads;
      if (tokens.selected && !tokens.heads) await loadHeadsInto(tokens, id, mine.signal);
      picture.show(tokens, { fade: fade || !first });
      if (first && headsOpen()) loadHeads();
      first = fade = false;
      update();
    }
  } catch (error) {
    if (error.name !== 'AbortError' && mine === watching && error.code !== 'session_not_found') problem(error.message);
  }
}
let watchedId = '';
let kvHeads = 0;

function headsOpen() { return !$('heads-window').hidden; }
function showHeads(open) {
  $('heads-window').hidden = !open;
  $('heads-toggle').setAttribute('aria-expanded', String(open));
  if (open) loadHeads();
  else if (heads.selected) heads.select(null);
}
$('heads-toggle').addEventListener('click', () => showHeads(!headsOpen()));

async function loadHeadsInto(tokens, id, signal) {
  tokens.setHeads(await sessions.kept(id, signal));
}

async function loadHeads() {
  const { tokens } = picture;
  const id = watchedId || shownSide()?.base?.id;
  if (!id || picture.unread) return;
  try {
    await loadHeadsInto(tokens, id, watching?.signal);
    if (tokens !== picture.tokens) return;
    heads.show(tokens, picture.ramp);
    picture.show(tokens, { fade: true });
  } catch (error) {
    if (error.name !== 'AbortError' && error.code !== 'session_not_found') problem(error.message);
  }
}

function onSelect(selected) {
  picture.tokens.selected = selected;
  picture.show(picture.tokens, { fade: true });
  describeSelection();
}

function describeSelection() {
  const { selected } = heads;
  $('legend').classList.toggle('one', selected?.head !== undefined);
  $('selected').textContent = !selected ? '' : selected.head === undefined ? `Layer ${selected.layer + 1}`
    : `Layer ${selected.layer + 1}, head ${selected.head + 1}`;
}

// --- Start ---

async function start() {
  try {
    for (;;) {
      try {
        await call('GET', 'health');
        break;
      } catch (error) {
        if (error.status !== 503) throw error;
        $('model').textContent = error.message;  // the model is loading, or the server is shutting down
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    }
    const models = await getJson('v1/models');
    const [props, methods] = await Promise.all([getJson('props'), getJson('v1/methods')]);
    const [model] = models.data;
    $('model').replaceChildren(make('strong', '', model.id), ...[parameters(model.meta?.n_params), `context of ${count(model.meta?.n_ctx ?? 0)} tokens`]
      .filter(Boolean).map((fact) => make('span', '', fact)));
    kvHeads = (props.kv?.n_layers ?? 0) * (props.kv?.n_kv_heads ?? 0);
    budget.fill(methods.data, (props.kv?.method ?? '').split(':')[0]);
    ready = true;
    update();
  } catch (error) {
    $('model').textContent = 'not connected';
    problem(`${error.message} Reload the page to try again.`);
  }
}
chooseTab('chat');
update();
start();
