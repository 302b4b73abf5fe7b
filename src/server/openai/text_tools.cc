#include <nlohmann/json.hpp>

#include "server/openai/handlers.h"

namespace winnow::server {

void Tokenize(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(*body);
  const auto content = fields.Text("content");
  if (!content) fields.Fail("content", "is missing, expected a text");
  const tokenizer::EncodeOptions options = {
      .add_special = fields.Bool("add_special").value_or(false),
      .parse_special = fields.Bool("parse_special").value_or(true)};
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  report::List tokens;
  for (const tokenizer::TokenId token : tokenizer.Encode(*content, options)) {
    if (with_pieces) {
      tokens.emplace_back(report::Record{{"id", token}, {"piece", tokenizer.Piece(token, true)}});
    } else {
      tokens.emplace_back(token);
    }
  }
  SendJson(context, *exchange, report::Record{{"tokens", std::move(tokens)}});
}

void Detokenize(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(*body);
  const report::List* list = fields.Array("tokens");
  if (list == nullptr) fields.Fail("tokens", "is missing, expected a list of token ids");
  Tokens tokens;
  if (list != nullptr) {
    for (const report::Value& item : *list) {
      const auto* id = std::get_if<int64_t>(&item.data);
      if (id == nullptr || *id < 0 || *id >= tokenizer.vocabulary_size()) {
        fields.Fail("tokens", "item " + std::to_string(tokens.size()) +
                                  " is not a token id, expected 0 to " +
                                  std::to_string(tokenizer.vocabulary_size() - 1));
        break;
      }
      tokens.push_back(static_cast<tokenizer::TokenId>(*id));
    }
  }
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  SendJson(context, *exchange,
           report::Record{{"content", tokenizer.Decode(tokens, /*render_special=*/true)}});
}

void ApplyTemplate(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  Fields fields(*body);
  chat::Conversation conversation = ReadConversation(fields, context.options.template_variables);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  conversation.unix_time = UnixTime();
  const auto prompt = context.prompts.Write(conversation);
  if (!prompt) {
    return SendError(
        context.metrics, *exchange,
        {.status = 400, .message = "messages: " + prompt.error().message, .param = "messages"});
  }
  SendJson(context, *exchange, report::Record{{"prompt", prompt->Text()}});
}

}  // namespace winnow::server
