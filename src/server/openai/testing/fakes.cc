#include "server/openai/testing/fakes.h"

#include <chrono>

#include "base/check.h"
#include "gguf/testing/builder.h"
#include "report/parse_json.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::server::testing {
namespace {

using runtime::Event;
using runtime::RequestError;
namespace small = tokenizer::testing;

std::unique_ptr<tokenizer::Tokenizer> MakeTokenizer() {
  small::VocabularyBuilder builder("gpt2");
  const auto bytes = small::SmallBytePairs();
  for (size_t i = 0; i < bytes.texts.size(); ++i) builder.Token(bytes.texts[i], bytes.kinds[i]);
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    builder.Token(token, tokenizer::TokenKind::kControl);
  }
  for (const char* merge : {"h e", "l l", "he ll", "hell o", "\u0120 hello"}) builder.Merge(merge);
  return small::Make(builder.Build());
}

std::unique_ptr<chat::PromptWriter> MakePrompts(const tokenizer::Tokenizer& tokenizer,
                                                const std::string& chat_template) {
  gguf::testing::Builder builder;
  builder.String("general.architecture", "llama");
  const auto file = gguf::File::Parse(builder.Bytes()).value();
  chat::WriterOptions options;
  options.built_in = chat_template;
  return std::make_unique<chat::PromptWriter>(
      chat::PromptWriter::Make(*file, tokenizer, options).value());
}

}  // namespace

FakeBackend::FakeBackend(const tokenizer::Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      model_{.name = "fake",
             .path = "fake.gguf",
             .context = 100,
             .trained_context = 200,
             .created = 7} {}

runtime::TokenId FakeBackend::FirstToken(const std::string& word) const {
  const auto tokens = tokenizer_.Encode(word, {.add_special = false});
  return tokens.empty() ? 0 : tokens[0];
}

std::variant<Backend::Submitted, RequestError> FakeBackend::Submit(runtime::Request request) {
  if (refusal) return *refusal;
  requests.push_back(std::move(request));
  const runtime::Request& r = requests.back();
  const auto tell = [&](const Event& event) { r.on_event(event); };
  Event prefill;
  prefill.kind = Event::Kind::kPrefill;
  prefill.n_done = prefill.n_all = static_cast<int64_t>(r.prompt.size());
  prefill.n_reused = 2;
  tell(prefill);
  Event started;
  started.kind = Event::Kind::kStarted;
  started.n_prompt = static_cast<int64_t>(r.prompt.size());
  started.n_reused = 2;
  started.reuse = runtime::PrefixReuse::kExact;
  tell(started);
  if (r.session) {
    const int64_t n_document = outlines[*r.session].n_document;
    outlines[*r.session] = r.outline.value_or(runtime::TextOutline{.n_document = n_document});
  }
  for (int choice = 0; choice < r.n; ++choice) {
    for (const std::string& word : words) {
      Event token;
      token.choice = choice;
      token.token = FirstToken(word);
      token.text = word;
      token.log_probability = -0.5F;
      for (int i = 0; i < r.n_probs; ++i) token.top.push_back({i, -0.5F - static_cast<float>(i)});
      tell(token);
      if (failure) {
        Event failed;
        failed.kind = Event::Kind::kFailed;
        failed.error = *failure;
        tell(failed);
        return Submitted{1, [this] { ++n_cancelled; }};
      }
      if (holds) return Submitted{1, [this] { ++n_cancelled; }};
    }
    Event finished;
    finished.kind = Event::Kind::kFinished;
    finished.choice = choice;
    finished.finish = finish;
    finished.stopping_word = stopping_word;
    finished.cache = {
        .method = "full", .n_seen = 9, .n_kept = 9, .bytes = 90, .bytes_full_f16 = 100};
    finished.timings.n_prefill = started.n_prompt - 2;
    finished.timings.prefill_ms = 10;
    tell(finished);
  }
  return Submitted{1, [this] { ++n_cancelled; }};
}

runtime::SessionInfo FakeBackend::Describe(const std::string& id) const {
  runtime::SessionInfo info;
  info.id = id;
  info.n_tokens = static_cast<int64_t>(sessions.at(id).size());
  info.cache.method = "full";
  if (const auto file = files.find(id); file != files.end()) {
    info.on_disk = true;
    info.file_bytes = file->second;
  }
  return info;
}

void FakeBackend::CreateSession(const std::string& id, runtime::Request document,
                                const SessionDone& done) {
  if (refusal) return done(*refusal);
  if (sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kBusy, "session " + id + " exists"});
  }
  if (session_failure) {
    Event prefill;
    prefill.kind = Event::Kind::kPrefill;
    if (document.on_event) document.on_event(prefill);
    return done(*session_failure);
  }
  sessions[id] = document.prompt;
  outlines[id] = document.outline.value_or(runtime::TextOutline());
  requests.push_back(std::move(document));
  if (!holds) done(Describe(id));
}

void FakeBackend::ForkSession(const std::string& from, const std::string& to,
                              const SessionDone& done) {
  if (!sessions.contains(from)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + from});
  }
  sessions[to] = std::vector(sessions[from]);
  outlines[to] = runtime::TextOutline(outlines[from]);
  done(Describe(to));
}

void FakeBackend::SaveSession(const std::string& id, const std::string&, const SessionDone& done) {
  if (!sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + id});
  }
  done(Describe(id));
}

void FakeBackend::RestoreSession(const std::string& id, const std::string& name,
                                 const SessionDone& done) {
  if (name != "saved") {
    return done(RequestError{runtime::ErrorKind::kInvalid, name + ": is not a session file"});
  }
  sessions[id] = {1, 2, 3};
  outlines.erase(id);
  done(Describe(id));
}

void FakeBackend::DeleteSession(const std::string& id, const SessionDone& done) {
  if (!sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + id});
  }
  const auto info = Describe(id);
  sessions.erase(id);
  outlines.erase(id);
  done(info);
}

void FakeBackend::ListSessions(const std::function<void(std::vector<runtime::SessionInfo>)>& done) {
  std::vector<runtime::SessionInfo> all;
  for (const auto& [id, tokens] : sessions) all.push_back(Describe(id));
  done(std::move(all));
}

void FakeBackend::FindSession(const std::string& id, const SessionDone& done) {
  if (!sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + id});
  }
  done(Describe(id));
}

void FakeBackend::ReadTokens(const std::string& id, const TokensDone& done) {
  if (!sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + id});
  }
  done(runtime::SessionTokens{.tokens = sessions[id],
                              .unread = unread[id],
                              .ended = ended.contains(id),
                              .outline = outlines[id]});
}

void FakeBackend::KeptPositions(const std::string& id, bool by_head, const KeptDone& done) {
  if (!sessions.contains(id)) {
    return done(RequestError{runtime::ErrorKind::kNotFound, "no session " + id});
  }
  if (reads_sessions) {
    return done(RequestError{runtime::ErrorKind::kBusy, "session " + id + " is being read"});
  }
  runtime::KeptTokens kept;
  kept.tokens = sessions[id];
  kept.share.assign(kept.tokens.size(), 0.5F);
  kept.n_layers = kept.n_kv_heads = 1;
  kept.n_document = outlines[id].n_document;
  if (by_head) kept.by_head = {{0, 1}};
  done(std::move(kept));
}

void FakeExchange::Send(HttpResponse response) {
  WINNOW_CHECK(!ended_);  // a second answer
  response_ = std::move(response);
  ended_ = true;
}
void FakeExchange::BeginStream(HttpResponse head) {
  WINNOW_CHECK(!ended_ && !streamed_);
  response_ = std::move(head);
  streamed_ = true;
}
void FakeExchange::Write(std::string bytes) {
  WINNOW_CHECK(streamed_ && !ended_);
  bytes_ += bytes;
}
void FakeExchange::End() {
  WINNOW_CHECK(streamed_ && !ended_);
  ended_ = true;
}
void FakeExchange::After(std::chrono::milliseconds delay, std::function<void()> work) {
  last_delay_ = delay;
  later_.push_back(std::move(work));
}
void FakeExchange::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  has_posted_.notify_all();
}
void FakeExchange::Run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (posted_.empty()) return;
    const auto work = std::move(posted_.front());
    posted_.pop_front();
    lock.unlock();
    work();
  }
}
void FakeExchange::PostWork(std::function<void()> work) {
  ++n_posted_long_;
  Post(std::move(work));
}
void FakeExchange::AcquireMemorySlot(std::function<void(MemorySlot slot)> work) {
  ++n_turns_;
  const MemorySlot slot = std::make_shared<int>();
  turn_ = slot;
  Post([work = std::move(work), slot] { work(slot); });
}
bool FakeExchange::Hold(size_t bytes) {
  if (bytes > max_held) return false;
  held_ = bytes;
  return true;
}
void FakeExchange::Wait() {
  std::unique_lock lock(mutex_);
  const bool posted =
      has_posted_.wait_for(lock, std::chrono::seconds(60), [this] { return !posted_.empty(); });
  lock.unlock();
  WINNOW_CHECK(posted);  // no other thread has: fail instead of waiting forever
  Run();
}
void FakeExchange::Disconnect() {
  later_.clear();
  if (closed_) closed_();
}
void FakeExchange::Tick() {
  for (auto work = std::exchange(later_, {}); auto& one : work) one();
  Run();
}

report::Record FakeExchange::json() const {
  auto value = report::ParseJson(response_.body);
  WINNOW_CHECK(value.has_value());
  return std::get<report::Record>(value->data);
}

std::vector<std::string> FakeExchange::events() const {
  std::vector<std::string> events;
  std::string_view rest = bytes_;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    WINNOW_CHECK(end != std::string_view::npos);  // an event is incomplete
    std::string_view event = rest.substr(0, end);
    WINNOW_CHECK(event.starts_with("data: "));
    events.emplace_back(event.substr(6));
    rest.remove_prefix(end + 2);
  }
  return events;
}

std::vector<report::Record> FakeExchange::chunks() const {
  std::vector<report::Record> chunks;
  for (const std::string& event : events()) {
    if (event == "[DONE]") continue;
    auto value = report::ParseJson(event);
    WINNOW_CHECK(value.has_value());
    chunks.push_back(std::get<report::Record>(value->data));
  }
  return chunks;
}

Fixture::Fixture(ServiceOptions options, const std::string& chat_template)
    : tokenizer(MakeTokenizer()),
      backend(*tokenizer),
      prompts(MakePrompts(*tokenizer, chat_template)),
      service(std::move(options)) {
  runtime::SamplerConfig sampler;
  sampler.temperature = 0.25;
  service.SetReady(backend, *prompts, sampler);
}

std::shared_ptr<FakeExchange> Fixture::Exercise(const HttpRequest& request) {
  auto exchange = std::make_shared<FakeExchange>();
  service.Handle(request, exchange);
  exchange->Run();
  return exchange;
}
std::shared_ptr<FakeExchange> Fixture::Post(const std::string& path, const std::string& body) {
  return Exercise({.method = "POST", .path = path, .body = body});
}
std::shared_ptr<FakeExchange> Fixture::Get(const std::string& path) {
  return Exercise({.method = "GET", .path = path});
}

}  // namespace winnow::server::testing
