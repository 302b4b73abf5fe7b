#include "server/openai/answer_run.h"

#include <iterator>
#include <utility>

#include "server/openai/history.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CompletionRun::CompletionRun(Parts parts) : parts_(std::move(parts)) {
  Answer& answer = parts_.answer;
  const int n = answer.asked.n;
  for (size_t prompt = 0; prompt < answer.prompts.size(); ++prompt) {
    for (int i = 0; i < n; ++i) {
      Choice choice;
      choice.index = static_cast<int>(answer.choices.size());
      choice.prompt = prompt;
      answer.choices.push_back(std::move(choice));
      parsers_.emplace_back(parts_.parser);
    }
  }
  begun_.assign(answer.choices.size(), false);
  last_token_.assign(answer.choices.size(), start_);
  n_open_ = answer.choices.size();
  if (!parts_.parses) return;
  markers_ = MarkerTokens(parts_.backend->tokenizer(), parts_.parser.tools);
}

void CompletionRun::Start(std::vector<runtime::Request> requests) {
  const auto self = shared_from_this();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].on_event = [self, i, exchange = parts_.exchange](const runtime::Event& event) {
      exchange->Post([self, i, event] { self->OnEvent(i, event); });
    };
    auto submitted = parts_.backend->Submit(std::move(requests[i]));
    if (const auto* error = std::get_if<runtime::RequestError>(&submitted)) {
      return Fail(i, *error);
    }
    cancels_.push_back(std::get<Backend::Submitted>(std::move(submitted)).cancel);
  }
  parts_.exchange->OnClosed([weak = weak_from_this()] {
    if (const auto run = weak.lock()) run->CancelAll();
  });
  if (parts_.answer.asked.stream) {
    streams_ = true;
    parts_.exchange->BeginStream(
        {.content_type = "text/event-stream",
         .headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}});
  }
}

void CompletionRun::CancelAll() {
  over_ = true;
  for (const auto& cancel : cancels_) cancel();
}

void CompletionRun::Fail(size_t prompt, const runtime::RequestError& error) {
  ApiError api = ErrorFrom(error, parts_.prompt_field);
  const int64_t n_tokens = std::ssize(parts_.answer.prompts[prompt].prompt.tokens);
  if (error.param == "prompt" && n_tokens >= parts_.backend->model().context) {
    api.code = "context_length_exceeded";
  }
  Fail(api);
}

void CompletionRun::Fail(const ApiError& error) {
  if (over_) return;
  CancelAll();
  parts_.metrics->OnResponse(error.status);
  if (!streams_) {
    HttpResponse response = {.status = error.status, .body = report::ToJson(ErrorRecord(error))};
    if (error.status == 429 || error.status == 503) response.headers = {{"retry-after", "1"}};
    return parts_.exchange->Send(std::move(response));
  }
  Send(ErrorRecord(error));
  parts_.exchange->End();
}

void CompletionRun::Send(const report::Value& value) {
  parts_.exchange->Write("data: " + report::ToJson(value) + "\n\n");
}

void CompletionRun::SendFirst(Choice& choice) {
  const auto index = static_cast<size_t>(choice.index);
  if (begun_[index] || !parts_.answer.asked.stream) return;
  begun_[index] = true;
  if (const auto first = parts_.format->First(parts_.answer, choice)) Send(*first);
}

void CompletionRun::OnEvent(size_t prompt, const runtime::Event& event) {
  if (over_) return;
  Answer& answer = parts_.answer;
  const size_t index =
      prompt * static_cast<size_t>(answer.asked.n) + static_cast<size_t>(event.choice);
  using Kind = runtime::Event::Kind;
  switch (event.kind) {
    case Kind::kPrefill:
      answer.prompts[prompt].n_reused = event.n_reused;
      if (answer.asked.stream && answer.asked.return_progress) {
        SendFirst(answer.choices[index]);
        const auto progress = parts_.format->Progress(answer, answer.choices[index], event,
                                                      1e3 * SecondsSince(start_));
        if (progress) Send(*progress);
      }
      return;
    case Kind::kStarted:
      answer.prompts[prompt].n_tokens = event.n_prompt;
      answer.prompts[prompt].n_reused = event.n_reused;
      answer.prompts[prompt].reuse = event.reuse;
      return OnStarted(prompt);
    case Kind::kToken:
      return OnToken(answer.choices[index], event);
    case Kind::kFinished:
      if (event.finish == runtime::Finish::kError) return Fail(prompt, event.error);
      return OnFinished(answer.choices[index], event);
    case Kind::kFailed:
      return Fail(prompt, event.error);
  }
}

// Estimates: the scheduler's own timings come with the end.
void CompletionRun::OnStarted(size_t prompt) {
  const PromptState& state = parts_.answer.prompts[prompt];
  for (Choice& choice : parts_.answer.choices) {
    if (choice.prompt != prompt) continue;
    choice.timings.n_prefill = state.n_tokens - state.n_reused;
    choice.timings.prefill_ms = 1e3 * SecondsSince(start_);
  }
}

chat::AnswerDelta CompletionRun::Take(Choice& choice, chat::AnswerDelta delta) {
  choice.content += delta.content;
  choice.reasoning += delta.reasoning;
  for (chat::ToolCallDelta& call : delta.tool_calls) {
    if (static_cast<size_t>(call.index) >= choice.tool_calls.size()) {
      if (call.id.empty()) call.id = "call_" + parts_.draw_id();
      choice.tool_calls.push_back({call.id, call.name, ""});
    }
    choice.tool_calls[static_cast<size_t>(call.index)].arguments += call.arguments;
  }
  return delta;
}

void CompletionRun::OnToken(Choice& choice, const runtime::Event& event) {
  const auto index = static_cast<size_t>(choice.index);
  if (choice.tokens.empty()) {
    parts_.metrics->OnFirstToken(SecondsSince(parts_.arrived));
  } else {
    const double seconds = SecondsSince(last_token_[index]);
    parts_.metrics->OnNextToken(seconds);
    ++choice.timings.n_decode;
    choice.timings.decode_ms += 1e3 * seconds;
  }
  last_token_[index] = std::chrono::steady_clock::now();
  choice.tokens.push_back(event.token);
  Delta delta;
  delta.token = &choice.tokens.back();
  const bool has_probabilities = parts_.answer.asked.n_probs >= 0;
  DrawnToken drawn;
  if (has_probabilities) {
    drawn = {event.token, event.log_probability, event.top};
    delta.drawn = &drawn;
    if (!parts_.answer.asked.stream && !AddProbabilities(choice, drawn)) return FailForRoom();
  }
  if (!parts_.parses) {
    delta.text.content = event.text;
    delta.text = Take(choice, std::move(delta.text));
  } else {
    std::string text = event.text;
    if (markers_.contains(event.token)) {
      text += parts_.backend->tokenizer().Piece(event.token, /*render_special=*/true);
    }
    delta.text = Take(choice, parsers_[index].Push(text));
  }
  if (parts_.answer.asked.stream) {
    SendFirst(choice);
    if (const auto next = parts_.format->Next(parts_.answer, choice, delta)) Send(*next);
  }
  if (has_probabilities) {
    choice.n_characters += CountCharacters(parts_.backend->tokenizer(), event.token);
  }
}

bool CompletionRun::AddProbabilities(Choice& choice, const DrawnToken& drawn) {
  parts_.format->AddProbabilities(drawn, choice);
  size_t n_bytes = 0;
  for (const Choice& each : parts_.answer.choices) {
    for (const std::string& list : each.probabilities) n_bytes += list.capacity();
  }
  return parts_.exchange->Hold(2 * n_bytes);  // in the lists and in the body they are copied to
}

void CompletionRun::FailForRoom() {
  Fail({.status = 503,
        .message = "the buffers of all connections have no room for the log-probabilities of this "
                   "answer; ask for fewer, or for a stream",
        .code = "busy"});
}

void CompletionRun::OnFinished(Choice& choice, const runtime::Event& event) {
  const auto index = static_cast<size_t>(choice.index);
  if (choice.finished) return;
  choice.finished = true;
  choice.finish = event.finish;
  choice.stopping_word = event.stopping_word;
  choice.cache = event.cache;
  choice.timings = event.timings;
  parts_.metrics->OnFinished(SecondsSince(parts_.arrived));
  parts_.metrics->OnQueued(event.queued_ms / 1e3);
  parts_.metrics->OnCache(event.cache);
  std::vector<chat::AnswerDelta> rest;
  if (!parts_.parses) {
    rest.emplace_back().content = event.rest;
  } else {
    rest.push_back(parsers_[index].Push(event.rest));
    rest.push_back(parsers_[index].Finish());
  }
  for (chat::AnswerDelta& part : rest) {
    if (part.empty()) continue;
    const Delta delta = {.text = Take(choice, std::move(part))};
    if (!parts_.answer.asked.stream) continue;
    SendFirst(choice);
    if (const auto next = parts_.format->Next(parts_.answer, choice, delta)) Send(*next);
  }
  if (parts_.answer.asked.stream) {
    SendFirst(choice);
    Send(parts_.format->Last(parts_.answer, choice));
  }
  if (--n_open_ == 0) Finish();
}

void CompletionRun::Finish() {
  over_ = true;
  parts_.metrics->OnResponse(200);
  if (!parts_.answer.asked.stream) {
    parts_.exchange->Send({.body = parts_.format->Whole(parts_.answer)});
    return;
  }
  if (const auto usage = parts_.format->Usage(parts_.answer)) Send(*usage);
  if (parts_.format->ends_with_done()) parts_.exchange->Write("data: [DONE]\n\n");
  parts_.exchange->End();
}

}  // namespace winnow::server
