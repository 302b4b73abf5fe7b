// Input of a text: the example, a file, pasting, dropping.
import { $ } from './dom.js';
import { count } from './format.js';

const MAX_BYTES = 24 << 20;  // the server allows bodies of 32 MiB; leaves room for JSON escapes

export const EXAMPLE_QUESTIONS = [
  'What is the secret code of the red lantern?',
  'What is the locker number of the silver compass?',
  'What is the birthday of the old bridge?',
];

// onText(text, name, questions), onProblem(message).
export function setUpIntake({ onText, onProblem }) {
  const paste = $('paste');
  const take = (text, name, questions = []) => {
    if (text.trim() === '') return onProblem('The text is empty.');
    // A UTF-16 code unit takes at most 3 bytes in UTF-8.
    const bytes = 3 * text.length <= MAX_BYTES ? text.length : new TextEncoder().encode(text).length;
    if (bytes > MAX_BYTES) return onProblem(`The text has ${count(bytes)} bytes; the page takes ${count(MAX_BYTES)}.`);
    onText(text, name, questions);
  };
  const takeFile = async (file) => {
    if (file.size > MAX_BYTES) return onProblem(`${file.name} has ${count(file.size)} bytes; the page takes ${count(MAX_BYTES)}.`);
    let text;
    try {
      text = await file.text();
    } catch {
      return onProblem(`${file.name} cannot be read.`);
    }
    if (text.slice(0, 65536).includes('\0') || text.startsWith('%PDF')) return onProblem(`${file.name} is not a text file.`);
    take(text, file.name);
  };

  const update = () => {
    $('read').disabled = paste.value.trim() === '';
    $('paste-size').textContent = paste.value === '' ? '' : `${count(paste.value.length)} characters`;
  };
  paste.addEventListener('input', update);
  $('intake').addEventListener('submit', (event) => {
    event.preventDefault();
    take(paste.value, 'Pasted text');
  });
  $('example').addEventListener('click', async () => {
    try {
      const response = await fetch('page/example.txt');
      if (!response.ok) throw new Error();
      take(await response.text(), 'The winter of Saltmere', EXAMPLE_QUESTIONS);
    } catch {
      onProblem('The example cannot be loaded: the server does not answer.');
    }
  });
  $('file').addEventListener('change', () => {
    const [file] = $('file').files;
    if (file) takeFile(file);
    $('file').value = '';
  });

  let depth = 0;  // dragenter and dragleave fire for every element on the way
  const carriesText = (event) => [...event.dataTransfer.types].some((type) => type === 'Files' || type === 'text/plain');
  const show = (on) => { $('drop').hidden = !on; };
  addEventListener('dragenter', (event) => { if (carriesText(event)) { ++depth; show(true); } });
  addEventListener('dragleave', (event) => { if (carriesText(event)) show(--depth > 0); });
  addEventListener('dragover', (event) => { if (carriesText(event)) event.preventDefault(); });
  addEventListener('drop', (event) => {
    depth = 0;
    show(false);
    if (!carriesText(event)) return;
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) takeFile(file);
    else take(event.dataTransfer.getData('text/plain'), 'Dropped text');
  });
  return { clear: () => { paste.value = ''; update(); } };
}
