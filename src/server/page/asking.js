// One side of the comparison: a document read under one budget, and the questions that go to it.
import { call, stream } from './api.js';
import * as sessions from './sessions.js';

export class Side {
  // kv: fields of the API, { kv_method, kv_ratio }. name: the column.
  constructor(key, name, kv) {
    Object.assign(this, { key, name, kv });
    this.base = null;     // the session that has read the document
    this.talk = null;     // its fork that answers
    this.error = '';      // why there is no base
    this.history = [];    // messages of the conversation so far
  }

  async read(text, { signal, onProgress }) {
    this.error = '';
    this.base = await sessions.read(text, this.kv, { signal, onProgress });
  }

  close() {
    sessions.drop(this.talk);
    sessions.drop(this.base?.id);
    this.talk = this.base = null;
  }

  // Asks and shows the answer as it arrives. onTalk(id) gets the answering session beforehand.
  // Errors and stops are shown in the answer, never thrown.
  async ask(question, answer, { alone, maxTokens, temperature, signal, onTalk }) {
    answer.begin(this.name);
    if (this.error) return answer.fail(this.error);
    try {
      if (alone) this.history = [];
      const asked = { role: 'user', content: question };
      let messages = [...this.history, asked];
      if (this.base) {
        if (this.talk && !alone) {
          messages = [asked];  // the session has read the previous messages
        } else {
          const old = this.talk;
          this.talk = (await sessions.fork(this.base.id, signal)).id;
          sessions.drop(old);
        }
        onTalk?.(this.talk);
      }
      await this.stream(messages, answer, { maxTokens, temperature, signal });
      this.history.push(asked, { role: 'assistant', content: answer.text.textContent });
    } catch (error) {
      // A stopped answer leaves an incomplete turn in the session: the next question uses a new fork.
      sessions.dropLater(this.talk);
      this.talk = null;
      if (error.name === 'AbortError') answer.stop();
      else answer.fail(error.message);
    }
  }

  async stream(messages, answer, { maxTokens, temperature, signal }) {
    const body = { messages, stream: true, max_tokens: maxTokens, temperature };
    if (this.base) body.session = this.talk;
    const response = await sessions.retryBusy(() => call('POST', 'v1/chat/completions', { body, signal }));
    let last = {};
    for await (const chunk of stream(response)) {
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) answer.append(choice.delta.content);
      if (choice?.delta?.reasoning_content) answer.think(choice.delta.reasoning_content);
      if (chunk.kv) last = { kv: chunk.kv, timings: chunk.timings, finish: choice?.finish_reason };
    }
    answer.finish(last);
  }
}
