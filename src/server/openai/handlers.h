#pragma once

#include <string>

#include "server/openai/context.h"
#include "server/openai/exchange.h"

// The handlers of the paths. Each sends exactly one response through the exchange, now or later;
// everything in the context must outlive it. `id` is the part of the path in braces.
namespace winnow::server {

// completions.cc
void ChatCompletions(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void TextCompletions(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void NativeCompletion(Context& context, const HttpRequest& request, const ExchangePtr& exchange);

// text_tools.cc
void Tokenize(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void Detokenize(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void ApplyTemplate(Context& context, const HttpRequest& request, const ExchangePtr& exchange);

// model_pages.cc
void ListModels(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void GetModel(Context& context, const ExchangePtr& exchange, const std::string& id);
void ListMethods(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void Props(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void Slots(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void MetricsPage(Context& context, const HttpRequest& request, const ExchangePtr& exchange);

// sessions.cc
void CreateSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void ListSessions(Context& context, const HttpRequest& request, const ExchangePtr& exchange);
void GetSession(Context& context, const ExchangePtr& exchange, const std::string& id);
void ForkSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id);
void SaveSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id);
void RestoreSession(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                    const std::string& id);
void DeleteSession(Context& context, const ExchangePtr& exchange, const std::string& id);
void SlotAction(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                const std::string& slot);

// session_events.cc
void SessionKept(Context& context, const HttpRequest& request, const ExchangePtr& exchange,
                 const std::string& id);
void SessionEvents(Context& context, const ExchangePtr& exchange, const std::string& id);

// {"id", "object", "n_tokens", "busy", "on_disk", "idle_seconds", "kv", "file_bytes"}. A value is
// null if only the session's file knows it.
report::Record SessionRecord(const runtime::SessionInfo& info);

}  // namespace winnow::server
