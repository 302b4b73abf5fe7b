#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/store/session_names.h"
#include "server/openai/generation_fields.h"
#include "server/openai/handlers.h"
#include "server/openai/history.h"
#include "server/openai/session_text.h"

namespace winnow::server {
namespace {

using runtime::RequestError;
using runtime::SessionInfo;

// Makes a callback that sends the error, or `body` made from the session, on the exchange's thread.
Backend::SessionDone Answering(Context& context, const ExchangePtr& exchange,
                               std::function<report::Record(const SessionInfo& info)> body,
                               const char* prompt_field = "prompt") {
  return [&context, exchange, prompt_field,
          body = std::move(body)](std::variant<SessionInfo, RequestError> outcome) {
    exchange->Post([&context, exchange, prompt_field, body, outcome = std::move(outcome)] {
      if (const auto* error = std::get_if<RequestError>(&outcome)) {
        return SendError(context.metrics, *exchange, ErrorFrom(*error, prompt_field));
      }
      SendJson(context, *exchange, body(std::get<SessionInfo>(outcome)));
    });
  };
}

// Sends the progress of reading a text as events. If the request is refused before it has to wait,
// it gets the error's own status. Used on the exchange's thread.
class ReadingStream {
 public:
  ReadingStream(Context& context, ExchangePtr exchange, const char* prompt_field)
      : context_(context), exchange_(std::move(exchange)), prompt_field_(prompt_field) {}

  void Begin() {
    if (std::exchange(begun_, true)) return;
    exchange_->BeginStream(
        {.content_type = "text/event-stream", .headers = {{"cache-control", "no-cache"}}});
  }
  void Write(const report::Record& event) {
    Begin();
    exchange_->Write("data: " + report::ToJson(event) + "\n\n");
  }
  void End(const std::variant<SessionInfo, RequestError>& outcome) {
    const auto* refused = std::get_if<RequestError>(&outcome);
    const ApiError error = refused != nullptr ? ErrorFrom(*refused, prompt_field_) : ApiError();
    if (refused != nullptr && !std::exchange(begun_, true)) {
      return SendError(context_.metrics, *exchange_, error);
    }
    Write(refused != nullptr ? ErrorRecord(error) : SessionRecord(std::get<SessionInfo>(outcome)));
    context_.metrics.OnResponse(refused != nullptr ? error.status : 200);
    exchange_->Write("data: [DONE]\n\n");
    exchange_->End();
  }

 private:
  Context& context_;
  ExchangePtr exchange_;
  const char* prompt_field_;
  bool begun_ = false;  // or an error was sent
};

// An absent body is an empty object.
std::optional<report::Record> ReadOptionalBody(const HttpRequest& request, ApiError& error) {
  return request.body.empty() ? std::optional(report::Record()) : ReadBody(request, error);
}

// The text of a new session: exactly one of document, messages and prompt.
struct SessionText {
  Tokens tokens = {};
  const char* field = "document";
  runtime::TextOutline outline = {};
};
SessionText ReadSessionText(Context& context, Fields& fields) {
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  SessionText out;
  const auto document = fields.Text("document");
  const bool has_messages = fields.Find("messages") != nullptr;
  const bool has_prompt = fields.Find("prompt") != nullptr;
  if ((document ? 1 : 0) + (has_messages ? 1 : 0) + (has_prompt ? 1 : 0) != 1) {
    fields.Fail("document", "expected one of document, messages and prompt");
    return out;
  }
  if (has_prompt) {
    out.field = "prompt";
    const auto prompts = ReadPrompts(fields, tokenizer);
    if (prompts.size() > 1) fields.Fail("prompt", "a session has one text");
    if (fields.ok()) out.tokens = prompts[0].tokens;
    return out;
  }
  if (has_messages) {
    out.field = "messages";
    chat::Conversation conversation = ReadConversation(fields, context.options.template_variables);
    if (!fields.ok()) return out;
    conversation.unix_time = UnixTime();
    conversation.add_generation_prompt = false;
    conversation.continue_final_message = false;
    const auto prompt = context.prompts.Write(conversation);
    if (!prompt) {
      fields.Fail("messages", prompt.error().message);
      return out;
    }
    out.tokens = tokenizer.EncodeMarked(prompt->text);
    out.outline = {.messages = HashMessages(MessagesInRequest(conversation))};
    return out;
  }
  chat::Conversation before = {
      .tools = ReadTools(fields),
      .variables = ReadTemplateVariables(fields, context.options.template_variables),
      .unix_time = UnixTime()};
  if (const auto system = fields.Text("system"); system && !system->empty()) {
    before.messages.push_back({{"role", "system"}, {"content", *system}});
  }
  if (!fields.ok()) return out;
  auto tokens = DocumentPrompt(context.prompts, tokenizer, before, *document);
  if (!tokens) {
    fields.Fail("document", tokens.error().message);
    return out;
  }
  out.tokens = std::move(tokens).value();
  out.outline = {.n_document = std::ssize(out.tokens),
                 .messages = HashMessages(MessagesInRequest(before))};
  return out;
}

// Checks the client's name for a session or its file.
void CheckName(Fields& fields, std::string_view field, const std::string& name) {
  if (runtime::IsSessionName(name)) return;
  fields.Fail(field, "found " + std::to_string(name.size()) +
                         " characters, expected 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a "
                         "dot");
}

// The name of a new session. Names are drawn at random, so that replicas that share the folder do
// not choose the same one.
std::string NewName(Context& context, Fields& fields) {
  std::string id = fields.Text("id").value_or("");
  if (id.empty()) return "s-" + context.ids.Draw();
  CheckName(fields, "id", id);
  return id;
}

}  // namespace

report::Record SessionRecord(const SessionInfo& info) {
  const auto known = [](bool is_known, auto value) {
    return is_known ? report::Value(value) : report::Value();
  };
  return {{"id", info.id},
          {"object", "session"},
          {"n_tokens", info.n_tokens},
          {"busy", info.busy},
          {"on_disk", info.on_disk},
          {"idle_seconds", info.idle_seconds},
          {"kv", report::Record{{"method", info.cache.method},
                                {"seen", info.cache.n_seen},
                                {"kept", known(!info.on_disk, info.cache.n_kept)},
                                {"bytes", known(!info.on_disk, info.cache.bytes)},
                                {"bytes_full", known(!info.on_disk || info.cache.bytes_full_f16 > 0,
                                                     info.cache.bytes_full_f16)}}},
          {"file_bytes", known(info.on_disk, info.file_bytes)}};
}

void CreateSession(Context& context, const HttpRequest& http_request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(http_request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  Generation generation = ReadGeneration(fields, context.options, context.backend.tokenizer(),
                                         Dialect::kNative, context.ids.DrawSeed());
  const std::string id = NewName(context, fields);
  SessionText text = ReadSessionText(context, fields);
  if (generation.session) fields.Fail("session", "the name of a new session is id");
  if (generation.id_slot >= 0) fields.Fail("id_slot", "the name of a new session is id");
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());

  runtime::Request request = RequestFrom(generation);
  request.prompt = text.tokens;
  request.outline = std::move(text.outline);
  request.max_tokens = 0;
  // If the client disconnects while the text is read, it does not want the session.
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  request.cancelled = [gone] { return gone->load(std::memory_order_relaxed); };
  exchange->OnClosed([gone] { gone->store(true, std::memory_order_relaxed); });
  if (!generation.stream) {
    return context.backend.CreateSession(id, std::move(request),
                                         Answering(context, exchange, SessionRecord, text.field));
  }
  const auto stream = std::make_shared<ReadingStream>(context, exchange, text.field);
  request.on_event = [stream, exchange](const runtime::Event& event) {
    if (event.kind != runtime::Event::Kind::kPrefill) return;
    const report::Record progress = {
        {"prompt_progress", report::Record{{"total", event.n_all}, {"processed", event.n_done}}}};
    exchange->Post([stream, progress] { stream->Write(progress); });
  };
  context.backend.CreateSession(
      id, std::move(request), [stream, exchange](std::variant<SessionInfo, RequestError> outcome) {
        exchange->Post([stream, outcome = std::move(outcome)] { stream->End(outcome); });
      });
  // Posted, so that an immediate refusal is sent first, with its own status.
  exchange->Post([stream] { stream->Begin(); });
}

void ListSessions(Context& context, const HttpRequest&, const ExchangePtr& exchange) {
  context.backend.ListSessions([&context, exchange](std::vector<SessionInfo> sessions) {
    exchange->Post([&context, exchange, sessions = std::move(sessions)] {
      report::List list;
      for (const SessionInfo& info : sessions) list.emplace_back(SessionRecord(info));
      SendJson(context, *exchange, report::Record{{"object", "list"}, {"data", std::move(list)}});
    });
  });
}

void GetSession(Context& context, const ExchangePtr& exchange, const std::string& id) {
  context.backend.FindSession(id, Answering(context, exchange, SessionRecord));
}

void ForkSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id) {
  ApiError error;
  const auto body = ReadOptionalBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  const std::string to = NewName(context, fields);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  context.backend.ForkSession(id, to, Answering(context, exchange, SessionRecord));
}

void SaveSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id) {
  ApiError error;
  const auto body = ReadOptionalBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  const std::string name = fields.Text("name").value_or(id);
  CheckName(fields, "name", name);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  context.backend.SaveSession(id, name,
                              Answering(context, exchange, [name](const SessionInfo& info) {
                                report::Record record = SessionRecord(info);
                                record.Add("name", name);
                                return record;
                              }));
}

void RestoreSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                    const std::string& id) {
  ApiError error;
  const auto body = ReadOptionalBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  const std::string name = fields.Text("name").value_or(id);
  CheckName(fields, "name", name);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  context.backend.RestoreSession(id, name, Answering(context, exchange, SessionRecord));
}

void DeleteSession(Context& context, const ExchangePtr& exchange, const std::string& id) {
  context.backend.DeleteSession(
      id, Answering(context, exchange, [id](const SessionInfo&) {
        return report::Record{{"id", id}, {"object", "session.deleted"}, {"deleted", true}};
      }));
}

// llama-server's slots are the sessions slot-0, slot-1, ...
void SlotAction(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                const std::string& slot) {
  // No leading zeros: a proxy chooses a replica by the slot's spelling.
  const bool has_zeros = slot.size() > 1 && slot.starts_with('0');
  const bool is_number = !slot.empty() && slot.size() < 10 && !has_zeros &&
                         slot.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    return SendError(context.metrics, *exchange,
                     {.status = 400, .message = "'" + slot + "' is not a slot number"});
  }
  const int64_t number = std::stoll(slot);
  const std::string session = SlotSession(number);
  const std::string_view action = request.Query("action");
  if (action == "erase") {
    return context.backend.DeleteSession(
        session, Answering(context, exchange, [number](const SessionInfo& info) {
          return report::Record{{"id_slot", number}, {"n_erased", info.n_tokens}};
        }));
  }
  if (action != "save" && action != "restore") {
    return SendError(
        context.metrics, *exchange,
        {.status = 400,
         .message = "action: found '" + std::string(action) + "', expected save, restore or erase",
         .param = "action"});
  }
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  const auto file = fields.Text("filename");
  if (!file) fields.Fail("filename", "is missing");
  if (file) CheckName(fields, "filename", *file);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  const auto start = std::chrono::steady_clock::now();
  const bool saves = action == "save";
  const auto record = [start, saves, number, name = *file](const SessionInfo& info) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    return report::Record{
        {"id_slot", number},
        {"filename", name},
        {saves ? "n_saved" : "n_restored", info.n_tokens},
        {saves ? "n_written" : "n_read", info.cache.bytes},
        {"timings", report::Record{{saves ? "save_ms" : "restore_ms", took.count()}}}};
  };
  auto answering = Answering(context, exchange, record);
  if (!saves) return context.backend.RestoreSession(session, *file, answering);
  context.backend.SaveSession(session, *file, answering);
}

}  // namespace winnow::server
