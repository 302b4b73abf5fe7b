#include <cmath>
#include <optional>
#include <utility>

#include "server/openai/handlers.h"

namespace winnow::server {
namespace {

using runtime::KeptTokens;
using runtime::RequestError;
using runtime::SessionInfo;

// Three digits: more than the picture can show.
double Rounded(float share) { return std::round(static_cast<double>(share) * 1e3) / 1e3; }

// The parts of `now` that differ from `before`, as [{"at", "share"}]. Short gaps of equal values
// are sent too rather than split.
report::List Changes(const std::vector<float>& before, const std::vector<float>& now) {
  constexpr size_t kMaxGap = 8;
  report::List changes;
  size_t at = 0;
  const auto differs = [&](size_t i) {
    return i >= before.size() || Rounded(before[i]) != Rounded(now[i]);
  };
  while (at < now.size()) {
    if (!differs(at)) {
      ++at;
      continue;
    }
    size_t end = at + 1;
    for (size_t i = end; i < now.size() && i - end < kMaxGap; ++i) {
      if (differs(i)) end = i + 1;
    }
    report::List shares;
    for (size_t i = at; i < end; ++i) shares.emplace_back(Rounded(now[i]));
    changes.emplace_back(
        report::Record{{"at", static_cast<int64_t>(at)}, {"share", std::move(shares)}});
    at = end;
  }
  return changes;
}

// The texts of tokens[from..]. If several tokens form a character, its text is at the last of them
// and the others are empty. `decoder` has seen the earlier tokens.
report::List Texts(const std::vector<runtime::TokenId>& tokens, size_t from,
                   tokenizer::StreamDecoder& decoder) {
  report::List texts;
  for (size_t i = from; i < tokens.size(); ++i) texts.emplace_back(decoder.Push(tokens[i]));
  return texts;
}

template <class Items, class Write>
void AppendList(std::string& out, const Items& items, const Write& write) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out += ',';
    write(item);
  }
  out += ']';
}

// Written as text: as values, the positions of all heads would take twenty times the memory.
std::string KeptJson(const KeptTokens& kept, bool by_head, const tokenizer::Tokenizer& tokenizer) {
  std::string out = R"({"n_layers":)" + std::to_string(kept.n_layers) + R"(,"n_kv_heads":)" +
                    std::to_string(kept.n_kv_heads) + R"(,"tokens":)";
  const auto number = [&](auto n) { out += std::to_string(n); };
  AppendList(out, kept.tokens, number);
  tokenizer::StreamDecoder decoder(tokenizer, /*render_special=*/true);
  out += R"(,"texts":)";
  AppendList(out, kept.tokens,
             [&](runtime::TokenId token) { out += report::ToJson(decoder.Push(token)); });
  out += R"(,"share":)";
  AppendList(out, kept.share, [&](float share) { out += report::ToJson(Rounded(share)); });
  if (by_head) {
    out += R"(,"by_head":)";
    AppendList(out, kept.by_head,
               [&](const auto& positions) { AppendList(out, positions, number); });
  }
  return out + "}";
}

// Watches a session for a client: polls it every 100 ms and sends the changes.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(Context& context, ExchangePtr exchange, std::string id)
      : context_(context),
        exchange_(std::move(exchange)),
        id_(std::move(id)),
        decoder_(context.backend.tokenizer(), /*render_special=*/true) {}

  void Look() {
    context_.backend.FindSession(id_, [self = shared_from_this(), exchange = exchange_](
                                          std::variant<SessionInfo, RequestError> outcome) {
      exchange->Post([self, outcome = std::move(outcome)] {
        const auto* found = std::get_if<SessionInfo>(&outcome);
        found == nullptr ? self->Gone() : self->OnFound(*found);
      });
    });
  }

 private:
  void OnFound(const SessionInfo& found) {
    Begin();
    const bool same = last_ && last_->n_tokens == found.n_tokens && last_->busy == found.busy &&
                      last_->cache.bytes == found.cache.bytes && last_->on_disk == found.on_disk &&
                      last_->file_bytes == found.file_bytes;
    if (same) return Later();
    last_ = found;
    if (found.on_disk) {
      Send({{"session", SessionRecord(found)}, {"changes", report::List()}});
      return Later();
    }
    // The texts of a long session take much memory until they are sent: few clients at a time.
    exchange_->AcquireMemorySlot([self = shared_from_this()](const Exchange::MemorySlot& slot) {
      self->context_.backend.KeptPositions(
          self->id_, false,
          [self, slot, exchange = self->exchange_](std::variant<KeptTokens, RequestError> kept) {
            exchange->Post([self, slot, kept = std::move(kept)] { self->OnKept(kept); });
          });
    });
  }

  void OnKept(const std::variant<KeptTokens, RequestError>& kept) {
    if (const auto* error = std::get_if<RequestError>(&kept)) {
      // Its prompt is being read, or other files come first. Look again even if the session does
      // not change.
      using Kind = runtime::ErrorKind;
      if (error->kind != Kind::kBusy && error->kind != Kind::kQueueFull) return Gone();
      last_.reset();
      return Later();
    }
    const auto* tokens = &std::get<KeptTokens>(kept);
    report::Record event = {{"session", SessionRecord(*last_)},
                            {"texts_from", static_cast<int64_t>(n_texts_)},
                            {"texts", Texts(tokens->tokens, n_texts_, decoder_)},
                            {"changes", Changes(share_, tokens->share)}};
    n_texts_ = tokens->tokens.size();
    share_ = tokens->share;
    Send(event);
    Later();
  }

  void Begin() {
    if (begun_) return;
    begun_ = true;
    context_.metrics.OnResponse(200);
    exchange_->BeginStream(
        {.content_type = "text/event-stream",
         .headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}});
  }

  void Gone() {
    if (!begun_) {
      return SendError(
          context_.metrics, *exchange_,
          {.status = 404, .message = "no session '" + id_ + "'", .code = "session_not_found"});
    }
    Send({{"deleted", true}});
    exchange_->End();
  }

  void Send(const report::Record& event) {
    exchange_->Write("data: " + report::ToJson(event) + "\n\n");
  }

  void Later() {
    constexpr std::chrono::milliseconds kEvery{100};
    exchange_->After(kEvery, [self = shared_from_this()] { self->Look(); });
  }

  Context& context_;
  ExchangePtr exchange_;
  std::string id_;
  bool begun_ = false;
  std::optional<SessionInfo> last_;
  tokenizer::StreamDecoder decoder_;
  size_t n_texts_ = 0;
  std::vector<float> share_;
};

}  // namespace

void SessionKept(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id) {
  const std::string_view wanted = request.Query("by_head");
  const bool by_head = wanted == "1" || wanted == "true";
  using Outcome = std::variant<KeptTokens, RequestError>;
  // With all heads this has one number per cache entry: make few at a time.
  exchange->AcquireMemorySlot([&context, exchange, id, by_head](const Exchange::MemorySlot& slot) {
    context.backend.KeptPositions(
        id, by_head, [&context, exchange, by_head, slot](Outcome outcome) {
          // Shared, because std::function copies its captures.
          const auto held = std::make_shared<const Outcome>(std::move(outcome));
          exchange->PostWork([&context, exchange, by_head, slot, held] {
            if (const auto* error = std::get_if<RequestError>(held.get())) {
              return SendError(context.metrics, *exchange, ErrorFrom(*error));
            }
            context.metrics.OnResponse(200);
            exchange->Send({.body = KeptJson(std::get<KeptTokens>(*held), by_head,
                                             context.backend.tokenizer())});
          });
        });
  });
}

void SessionEvents(Context& context, const ExchangePtr& exchange, const std::string& id) {
  std::make_shared<Watch>(context, exchange, id)->Look();
}

}  // namespace winnow::server
