#include "server/openai/service.h"

#include <exception>
#include <span>
#include <utility>

#include "base/sha256.h"
#include "server/openai/handlers.h"
#include "server/page/page.h"

namespace winnow::server {
namespace {

std::string HashText(std::string_view text) {
  Sha256 hash;
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Hex();
}

// For texts of equal length, takes the same time wherever they differ.
bool EqualInConstantTime(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

// Adds the headers that let pages of another origin read the response.
class CorsExchange final : public Exchange {
 public:
  CorsExchange(ExchangePtr inner, std::string origin)
      : inner_(std::move(inner)), origin_(std::move(origin)) {}

  void Send(HttpResponse response) override { inner_->Send(WithHeaders(std::move(response))); }
  void BeginStream(HttpResponse head) override {
    inner_->BeginStream(WithHeaders(std::move(head)));
  }
  void Write(std::string bytes) override { inner_->Write(std::move(bytes)); }
  void End() override { inner_->End(); }
  void OnClosed(std::function<void()> closed) override { inner_->OnClosed(std::move(closed)); }
  void Post(std::function<void()> work) override { inner_->Post(std::move(work)); }
  void PostWork(std::function<void()> work) override { inner_->PostWork(std::move(work)); }
  void AcquireMemorySlot(std::function<void(MemorySlot slot)> work) override {
    inner_->AcquireMemorySlot(std::move(work));
  }
  bool Hold(size_t bytes) override { return inner_->Hold(bytes); }
  void After(std::chrono::milliseconds delay, std::function<void()> work) override {
    inner_->After(delay, std::move(work));
  }

 private:
  HttpResponse WithHeaders(HttpResponse response) const {
    response.headers.emplace_back("access-control-allow-origin", origin_);
    response.headers.emplace_back("vary", "origin");
    return response;
  }

  ExchangePtr inner_;
  std::string origin_;
};

// The token of "Bearer TOKEN"; empty: another scheme.
std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() <= kBearer.size()) return {};
  for (size_t i = 0; i < kBearer.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kBearer[i]) return {};
  }
  return authorization.substr(kBearer.size());
}

bool IsHealthPath(std::string_view path) { return path == "/health" || path == "/v1/health"; }

// The headers that pages of an allowed origin may send: all they ask for, because clients add their
// own (x-stainless-os). Anything but a list of names is not echoed.
std::string AllowedHeaders(const HttpRequest& request) {
  const std::string_view asked = request.Header("access-control-request-headers");
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
  constexpr size_t kMaxBytes = 4096;
  const bool is_list = !asked.empty() && asked.size() <= kMaxBytes &&
                       asked.find_first_not_of(kLetters) == std::string_view::npos;
  return is_list ? std::string(asked) : "authorization, content-type, x-api-key, x-session";
}

std::string_view Lookup(const HttpRequest::Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const { return Lookup(headers, name); }
std::string_view HttpRequest::Query(std::string_view name) const { return Lookup(query, name); }

// A path, its methods and its handler. "{}" in a pattern matches one segment, passed as `id`.
struct Service::Route {
  using Plain = void (*)(Context&, const HttpRequest&, const ExchangePtr&);
  using WithId = void (*)(Context&, const HttpRequest&, const ExchangePtr&, const std::string&);
  using OnlyId = void (*)(Context&, const ExchangePtr&, const std::string&);

  std::string_view pattern;
  Plain get = nullptr;
  Plain post = nullptr;
  OnlyId get_id = nullptr;
  OnlyId delete_id = nullptr;
  WithId post_id = nullptr;
  WithId get_with_request = nullptr;
  const char* unsupported = nullptr;  // POST is a 501 with this message
  bool is_private = false;            // GET shows what clients have written
  bool has_slashes = false;           // "{}" may match slashes

  bool has_get() const {
    return get != nullptr || get_id != nullptr || get_with_request != nullptr;
  }
  bool has_post() const { return post != nullptr || post_id != nullptr || unsupported != nullptr; }
  std::string Methods() const {
    std::string methods;
    if (has_get()) methods += "GET, HEAD, ";
    if (has_post()) methods += "POST, ";
    if (delete_id != nullptr) methods += "DELETE, ";
    return methods + "OPTIONS";
  }
};

const Service::Route* Service::FindRoute(const std::string& path, std::string* id) {
  constexpr const char* kNoEmbeddings = "embeddings are not supported: this server generates text";
  constexpr const char* kNoSuch = "this call is not supported; /v1/chat/completions is";
  static const Route kRoutes[] = {
      {.pattern = "/v1/models", .get = ListModels},
      {.pattern = "/models", .get = ListModels},
      {.pattern = "/v1/models/{}", .get_id = GetModel, .has_slashes = true},
      {.pattern = "/v1/methods", .get = ListMethods},
      {.pattern = "/v1/chat/completions", .post = ChatCompletions},
      {.pattern = "/chat/completions", .post = ChatCompletions},
      {.pattern = "/v1/completions", .post = TextCompletions},
      {.pattern = "/completion", .post = NativeCompletion},
      {.pattern = "/completions", .post = NativeCompletion},
      {.pattern = "/tokenize", .post = Tokenize},
      {.pattern = "/detokenize", .post = Detokenize},
      {.pattern = "/apply-template", .post = ApplyTemplate},
      {.pattern = "/props", .get = Props, .post = Props},
      {.pattern = "/slots", .get = Slots, .is_private = true},
      {.pattern = "/slots/{}", .post_id = SlotAction},
      {.pattern = "/metrics", .get = MetricsPage},
      {.pattern = "/v1/sessions", .get = ListSessions, .post = CreateSession, .is_private = true},
      {.pattern = "/v1/sessions/{}",
       .get_id = GetSession,
       .delete_id = DeleteSession,
       .is_private = true},
      {.pattern = "/v1/sessions/{}/kept", .get_with_request = SessionKept, .is_private = true},
      {.pattern = "/v1/sessions/{}/events", .get_id = SessionEvents, .is_private = true},
      {.pattern = "/v1/sessions/{}/fork", .post_id = ForkSession},
      {.pattern = "/v1/sessions/{}/save", .post_id = SaveSession},
      {.pattern = "/v1/sessions/{}/restore", .post_id = RestoreSession},
      {.pattern = "/v1/embeddings", .unsupported = kNoEmbeddings},
      {.pattern = "/embeddings", .unsupported = kNoEmbeddings},
      {.pattern = "/embedding", .unsupported = kNoEmbeddings},
      {.pattern = "/infill", .unsupported = kNoSuch},
      {.pattern = "/v1/rerank", .unsupported = kNoSuch},
      {.pattern = "/rerank", .unsupported = kNoSuch},
      {.pattern = "/v1/responses", .unsupported = kNoSuch},
      {.pattern = "/v1/messages", .unsupported = kNoSuch},
  };
  for (const Route& route : kRoutes) {
    const size_t at = route.pattern.find("{}");
    if (at == std::string_view::npos) {
      if (route.pattern == path) return &route;
      continue;
    }
    const std::string_view before = route.pattern.substr(0, at);
    const std::string_view after = route.pattern.substr(at + 2);
    if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
        !path.ends_with(after)) {
      continue;
    }
    const std::string segment =
        path.substr(before.size(), path.size() - before.size() - after.size());
    if (!route.has_slashes && segment.find('/') != std::string::npos) continue;
    *id = segment;
    return &route;
  }
  return nullptr;
}

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      // With API keys, a page of a rebound host name cannot do anything: it has no key.
      origins_(options_.cors_origin, options_.loopback && options_.api_keys.empty(),
               options_.words),
      ids_(options_.id_seed) {
  for (const std::string& key : options_.api_keys) key_hashes_.push_back(HashText(key));
}
Service::~Service() = default;

void Service::SetReady(Backend& backend, const chat::PromptWriter& prompts,
                       const runtime::SamplerConfig& sampler,
                       std::shared_ptr<const ConstraintFactory> constraints) {
  options_.sampler = sampler;
  if (constraints != nullptr) options_.constraints = std::move(constraints);
  constraints_ = std::make_unique<ConstraintQueue>(options_.constraints);
  context_owner_ =
      std::make_unique<Context>(Context{options_, backend, prompts, metrics_, ids_, *constraints_});
  context_ = context_owner_.get();
}

void Service::SetDraining() {
  draining_ = true;
  Stop();
}

void Service::Stop() {
  if (constraints_ != nullptr) constraints_->Stop();
}

bool Service::IsKey(std::string_view key) const {
  // Hashes have equal length; all are compared, so the time tells nothing about the keys.
  const std::string hash = HashText(key);
  bool found = false;
  for (const std::string& known : key_hashes_) found |= EqualInConstantTime(hash, known);
  return found;
}

// A client may send another server's key in one header and ours in the other.
bool Service::HasKey(const HttpRequest& request) const {
  if (key_hashes_.empty()) return true;
  const bool own = IsKey(request.Header("x-api-key"));
  const bool bearer = IsKey(BearerToken(request.Header("authorization")));
  return own || bearer;
}

// What browsers load and ask before they can send a key, and load balancers' health checks.
bool Service::IsForAll(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return true;
  if (request.method != "GET" && request.method != "HEAD") return false;
  return IsHealthPath(request.path) || (options_.page && page::Find(request.path) != nullptr);
}

std::optional<ApiError> Service::CheckHead(const HttpRequest& head) const {
  if (IsForAll(head)) return std::nullopt;
  // A page can make a browser send requests whose responses it may not read.
  using Access = OriginRules::Access;
  const bool reads = head.method == "GET" || head.method == "HEAD";
  std::string id;
  const Route* route = FindRoute(head.path, &id);
  const bool tells = route != nullptr && route->is_private;
  const Access access = !reads ? Access::kChange : tells ? Access::kReadPrivate : Access::kRead;
  if (auto refused = origins_.Check(head, access)) return refused;
  if (HasKey(head)) return std::nullopt;
  return ApiError{.status = 401,
                  .message = "wrong or missing API key: send it as 'Authorization: Bearer KEY'",
                  .code = "invalid_api_key"};
}

ExchangePtr Service::WithCors(const HttpRequest& request, ExchangePtr exchange) const {
  const std::string origin = origins_.Allowed(request);
  if (origin.empty()) return exchange;
  return std::make_shared<CorsExchange>(std::move(exchange), origin);
}

void Service::Refuse(const HttpRequest& head, ExchangePtr exchange, const ApiError& error) {
  SendError(metrics_, *WithCors(head, std::move(exchange)), error);
}

void Service::Health(Exchange& exchange) {
  const char* waits = draining_ ? "Shutting down" : context_ == nullptr ? "Loading model" : nullptr;
  if (waits == nullptr) {
    metrics_.OnResponse(200);
    return exchange.Send({.body = R"({"status":"ok"})"});
  }
  metrics_.OnResponse(503);
  const report::Record body = {
      {"error", report::Record{{"code", 503}, {"message", waits}, {"type", "unavailable_error"}}}};
  exchange.Send({.status = 503, .body = report::ToJson(body)});
}

void Service::SendPage(const HttpRequest& request, Exchange& exchange) {
  const page::File* file = page::Find(request.path);
  // Revalidated on each load; sent again only after the binary's page has changed.
  HttpResponse response = {.content_type = std::string(file->content_type),
                           .headers = {{"cache-control", "no-cache"},
                                       {"etag", std::string(file->etag)},
                                       {"content-security-policy",
                                        "default-src 'none'; script-src 'self'; style-src 'self'; "
                                        "img-src 'self'; connect-src 'self'; base-uri 'none'; "
                                        "form-action 'none'; frame-ancestors 'none'"},
                                       {"cross-origin-opener-policy", "same-origin"},
                                       {"referrer-policy", "no-referrer"},
                                       {"x-content-type-options", "nosniff"}}};
  if (request.Header("if-none-match").find(file->etag) != std::string_view::npos) {
    response.status = 304;
  } else {
    response.body = std::string(file->bytes);
  }
  metrics_.OnResponse(response.status);
  exchange.Send(std::move(response));
}

void Service::Handle(const HttpRequest& request, ExchangePtr exchange) {
  try {
    exchange = WithCors(request, std::move(exchange));
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (reads && IsHealthPath(request.path)) return Health(*exchange);
    if (reads && options_.page && page::Find(request.path) != nullptr) {
      return SendPage(request, *exchange);
    }
    std::string id;
    const Route* route = FindRoute(request.path, &id);
    if (request.method == "OPTIONS") {
      HttpResponse response = {.status = 204};
      response.headers.emplace_back(
          "allow", route != nullptr ? route->Methods() : "GET, HEAD, POST, DELETE, OPTIONS");
      if (!origins_.Allowed(request).empty()) {
        response.headers.emplace_back("access-control-allow-methods", "GET, POST, DELETE");
        response.headers.emplace_back("access-control-allow-headers", AllowedHeaders(request));
        response.headers.emplace_back("access-control-max-age", "600");
      }
      metrics_.OnResponse(204);
      return exchange->Send(std::move(response));
    }
    if (const auto refused = CheckHead(request)) return SendError(metrics_, *exchange, *refused);
    if (route == nullptr) {
      return SendError(
          metrics_, *exchange,
          {.status = 404, .message = "unknown path " + request.path, .code = "unknown_path"});
    }
    if (context_ == nullptr) {
      return SendError(metrics_, *exchange,
                       {.status = 503, .message = "Loading model", .code = "loading"});
    }
    Dispatch(*route, request, exchange, id);
  } catch (const std::exception& problem) {
    // Mostly out of memory: this request ends, the server goes on.
    SendError(metrics_, *exchange,
              {.status = 500,
               .message = std::string("internal error: ") + problem.what(),
               .code = "internal_error"});
  }
}

void Service::Dispatch(const Route& route, const HttpRequest& request, const ExchangePtr& exchange,
                       const std::string& id) {
  Context& context = *context_;
  if (request.method == "GET" || request.method == "HEAD") {
    if (route.get != nullptr) return route.get(context, request, exchange);
    if (route.get_id != nullptr) return route.get_id(context, exchange, id);
    if (route.get_with_request != nullptr)
      return route.get_with_request(context, request, exchange, id);
  }
  if (request.method == "POST") {
    if (route.unsupported != nullptr) {
      return SendError(metrics_, *exchange, {.status = 501, .message = route.unsupported});
    }
    if (route.post != nullptr) return route.post(context, request, exchange);
    if (route.post_id != nullptr) return route.post_id(context, request, exchange, id);
  }
  if (request.method == "DELETE" && route.delete_id != nullptr) {
    return route.delete_id(context, exchange, id);
  }
  metrics_.OnResponse(405);
  exchange->Send({.status = 405,
                  .body = report::ToJson(
                      ErrorRecord({.status = 405,
                                   .message = request.method + " is not allowed for " +
                                              request.path + "; expected " + route.Methods()})),
                  .headers = {{"allow", route.Methods()}}});
}

}  // namespace winnow::server
