// Creates elements without parsing HTML: any text is shown as text.

export const $ = (id) => document.getElementById(id);

// make('p', 'note', 'text') or make('p', 'note', child, child).
export function make(name, className = '', ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// Runs `work` at the next frame, once even if requested several times.
export function oncePerFrame(work) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      work();
    });
  };
}

// A canvas as large as its box, in the screen's pixels. Returns the context in CSS pixels, and the box.
export function prepareCanvas(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 3);
  const w = Math.max(1, Math.round(width * scale));
  const h = Math.max(1, Math.round(height * scale));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export const prefersStillness = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
