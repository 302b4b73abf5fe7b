#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <utility>

#include "base/begins_with.h"
#include "server/openai/answer_run.h"
#include "server/openai/constraint_fields.h"
#include "server/openai/formats.h"
#include "server/openai/handlers.h"
#include "server/openai/session_text.h"

namespace winnow::server {
namespace {

constexpr int64_t kMaxTopChat = 20;

// A parsed request whose prompts are not known yet.
struct Asked {
  Generation generation = {};
  std::unique_ptr<const AnswerFormat> format = {};
  const char* id_prefix = "cmpl-";
  chat::AnswerOptions parser = {};
  bool parses = false;
  const char* prompt_field = "prompt";
  ConstraintSpec constraint = {};                    // of the answer
  std::optional<runtime::TextOutline> outline = {};  // of the session with the prompt
  std::string warning = {};  // about parts of the request that the model does not see
  std::chrono::steady_clock::time_point arrived = {};
};

// Submits the prompts. Each gets a copy of the constraint, if there is one.
void Submit(Context& context, const ExchangePtr& exchange, Asked asked,
            std::vector<PromptText> prompts, std::string warning,
            const runtime::TokenConstraint* constraint) {
  std::vector<runtime::Request> requests;
  Answer answer = {.id = asked.id_prefix + context.ids.Draw(),
                   .created = UnixTime(),
                   .model = context.backend.model().name,
                   .asked = std::move(asked.generation),
                   .warning = std::move(warning)};
  for (PromptText& prompt : prompts) {
    runtime::Request request = RequestFrom(answer.asked);
    request.prompt = prompt.tokens;
    request.begins_with_session = request.session.has_value();  // as WithSession writes prompts
    request.outline = asked.outline;
    if (constraint != nullptr) request.constraint = constraint->Copy();
    requests.push_back(std::move(request));
    answer.prompts.push_back({.prompt = std::move(prompt)});
  }
  const auto run = std::make_shared<CompletionRun>(
      CompletionRun::Parts{.exchange = exchange,
                           .backend = &context.backend,
                           .metrics = &context.metrics,
                           .format = std::move(asked.format),
                           .answer = std::move(answer),
                           .parser = asked.parser,
                           .parses = asked.parses,
                           .draw_id = [ids = &context.ids] { return ids->Draw(); },
                           .prompt_field = asked.prompt_field,
                           .arrived = asked.arrived});
  run->Start(std::move(requests));
}

std::string Joined(std::string warning, const std::string& other) {
  if (!warning.empty() && !other.empty()) warning += "; ";
  return warning + other;
}

// The warning for calls that are not restricted because their constraint cannot be made.
std::string UnrestrictedCallsWarning(const std::string& warning, const ApiError& error) {
  return Joined(warning, "tool calls are not restricted to their schemas: " + error.message);
}

// As Submit, on the exchange's thread once the constraint is made. If calls that the model may
// begin itself cannot be restricted, the answer goes on unrestricted, with a warning: it may never
// call a tool.
void Run(Context& context, const ExchangePtr& exchange, Asked asked,
         std::vector<PromptText> prompts, std::string warning) {
  if (asked.constraint.kind == ConstraintSpec::Kind::kNone) {
    return Submit(context, exchange, std::move(asked), std::move(prompts), std::move(warning),
                  nullptr);
  }
  struct Held {
    Asked asked;
    std::vector<PromptText> prompts;
    std::string warning;
    bool may_be_free = false;
    ConstraintQueue::Outcome outcome = ApiError();
    std::atomic<bool> client_gone{false};
  };
  const auto held = std::make_shared<Held>();
  ConstraintSpec spec = std::move(asked.constraint);
  held->asked = std::move(asked);
  held->prompts = std::move(prompts);
  held->warning = std::move(warning);
  held->may_be_free = spec.kind == ConstraintSpec::Kind::kAutoCalls;
  exchange->OnClosed([held] { held->client_gone = true; });
  const auto submit = [held, exchange, &context] {
    const runtime::TokenConstraint* constraint = nullptr;
    if (const auto* error = std::get_if<ApiError>(&held->outcome)) {
      const bool ends = error->status == 503;  // the server ends
      if (!held->may_be_free || ends) return SendError(context.metrics, *exchange, *error);
      held->warning = UnrestrictedCallsWarning(held->warning, *error);
    } else {
      constraint = std::get<0>(held->outcome).get();
    }
    Submit(context, exchange, std::move(held->asked), std::move(held->prompts),
           std::move(held->warning), constraint);
  };
  context.constraints.Make({.spec = std::move(spec),
                            .cancelled = [held] { return held->client_gone.load(); },
                            .done =
                                [held, exchange, submit](ConstraintQueue::Outcome outcome) {
                                  held->outcome = std::move(outcome);
                                  exchange->Post(submit);
                                }});
}

// Reads the session's tokens and what they are, and passes them to `then` on the
// exchange's thread, which writes and tokenizes the prompt there.
void WithSession(Context& context, const ExchangePtr& exchange, const std::string& session,
                 std::function<void(const runtime::SessionTokens& read)> then) {
  context.backend.ReadTokens(
      session, [exchange, metrics = &context.metrics, then = std::move(then)](
                   std::variant<runtime::SessionTokens, runtime::RequestError> tokens) {
        exchange->PostWork([exchange, metrics, then, tokens = std::move(tokens)] {
          if (const auto* error = std::get_if<runtime::RequestError>(&tokens)) {
            ApiError api = ErrorFrom(*error);
            api.param = "session";
            return SendError(*metrics, *exchange, api);
          }
          then(std::get<runtime::SessionTokens>(tokens));
        });
      });
}

void RunChat(Context& context, const ExchangePtr& exchange, Asked asked, const chat::Prompt& prompt,
             Tokens tokens) {
  std::string text = prompt.Text();
  // Other constraints do not allow reasoning, so the answer cannot continue reasoning that the
  // prompt opened.
  const bool is_free = asked.constraint.kind == ConstraintSpec::Kind::kNone ||
                       asked.constraint.kind == ConstraintSpec::Kind::kAutoCalls;
  asked.parser.starts_in_reasoning = is_free && chat::EndsInReasoning(text);
  asked.constraint.starts_in_reasoning = asked.parser.starts_in_reasoning;
  if (asked.outline) {
    asked.outline->answer_has_tools |= asked.parser.tools != chat::ToolFormat::kNone;
    // An answer that is continued has begun before.
    const bool begins = asked.outline->answer_begins == std::ssize(tokens);
    asked.outline->answer_in_reasoning |= begins && asked.parser.starts_in_reasoning;
  }
  std::vector<PromptText> prompts;
  prompts.push_back({std::move(tokens), std::move(text)});
  std::string warning = Joined(std::move(asked.warning), prompt.warning);
  Run(context, exchange, std::move(asked), std::move(prompts), std::move(warning));
}

// Chat pages offer tools to every model and let the model choose. If the template takes no tools,
// the model answers without them. A required call remains an error of the template.
void LeaveOutTools(const chat::PromptWriter& writer, chat::Conversation& conversation,
                   Asked& asked) {
  if (conversation.tools.is_null() || writer.takes_tools()) return;
  if (asked.constraint.kind == ConstraintSpec::Kind::kCalls) return;
  conversation.tools = nullptr;
  asked.warning = "the model's chat template does not support tools: the model does not see them";
}

void SendTemplateError(Context& context, Exchange& exchange, const winnow::Error& error) {
  SendError(context.metrics, exchange,
            {.status = 400, .message = "messages: " + error.message, .param = "messages"});
}

// Fields that ask for unsupported features.
void RefuseUnsupported(Fields& fields) {
  if (const auto text = fields.Text("suffix"); text && !text->empty()) {
    fields.Fail("suffix", "filling in the middle is not supported");
  }
}

}  // namespace

void ChatCompletions(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(*body);
  Asked asked = {.generation = ReadGeneration(fields, context.options, tokenizer, Dialect::kOpenAi,
                                              context.ids.DrawSeed()),
                 .format = ChatFormat(tokenizer),
                 .id_prefix = "chatcmpl-",
                 .parses = true,
                 .prompt_field = "messages"};
  const auto top = fields.Integer("top_logprobs", 0, kMaxTopChat);
  if (fields.Bool("logprobs").value_or(false)) {
    asked.generation.n_probs = static_cast<int>(top.value_or(0));
  } else if (top.value_or(0) > 0) {
    fields.Fail("top_logprobs", "needs logprobs to be true");
  }
  chat::Conversation conversation = ReadConversation(fields, context.options.template_variables);
  conversation.unix_time = UnixTime();
  asked.arrived = request.arrived;
  asked.constraint = ReadConstraint(fields, context.options);
  ReadToolChoice(fields, context.options, context.prompts.tool_format(), conversation,
                 asked.constraint);
  LeaveOutTools(context.prompts, conversation, asked);
  if (!conversation.tools.is_null()) asked.parser.tools = context.prompts.tool_format();
  RefuseUnsupported(fields);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());

  if (!asked.generation.session) {
    const auto prompt = context.prompts.Write(conversation);
    if (!prompt) return SendTemplateError(context, *exchange, prompt.error());
    return RunChat(context, exchange, std::move(asked), *prompt,
                   tokenizer.EncodeMarked(prompt->text));
  }
  const std::string session = *asked.generation.session;
  // Shared, because std::function copies its captures.
  const auto held = std::make_shared<Asked>(std::move(asked));
  WithSession(context, exchange, session,
              [&context, exchange, held, conversation](const runtime::SessionTokens& found) {
                auto turn =
                    WriteTurn(context.prompts, context.backend.tokenizer(), conversation, found);
                if (!turn) return SendTemplateError(context, *exchange, turn.error());
                held->outline = std::move(turn->outline);
                RunChat(context, exchange, std::move(*held), turn->prompt, std::move(turn->tokens));
              });
}

namespace {

// Text completions of both dialects. A session's prompt continues its text.
void RunTexts(Context& context, const ExchangePtr& exchange, Asked asked,
              const report::Record& body) {
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(body);
  std::vector<PromptText> prompts = ReadPrompts(fields, tokenizer);
  if (asked.generation.session && prompts.size() > 1) {
    fields.Fail("prompt", "a session takes one prompt at a time");
  }
  if (asked.generation.id_slot >= 0 && prompts.size() > 1) {
    fields.Fail("prompt", "a slot takes one prompt at a time");
  }
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  if (!asked.generation.session) {
    return Run(context, exchange, std::move(asked), std::move(prompts), {});
  }
  const std::string session = *asked.generation.session;
  const auto held = std::make_shared<Asked>(std::move(asked));
  const auto record = std::make_shared<const report::Record>(body);
  WithSession(context, exchange, session,
              [&context, exchange, held, record, prompts](const runtime::SessionTokens& read) {
                std::vector<PromptText> whole = prompts;
                if (!BeginsWith(whole[0].tokens, read.tokens)) {
                  Fields again(*record);
                  Tokens said = read.tokens;
                  said.insert(said.end(), read.unread.begin(), read.unread.end());
                  whole = ReadPrompts(again, context.backend.tokenizer(), said);
                }
                Run(context, exchange, std::move(*held), std::move(whole), {});
              });
}

}  // namespace

void TextCompletions(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(*body);
  const bool echo = fields.Bool("echo").value_or(false);
  Asked asked = {.generation = ReadGeneration(fields, context.options, tokenizer, Dialect::kOpenAi,
                                              context.ids.DrawSeed()),
                 .format = TextFormat(tokenizer, echo)};
  if (const auto n = fields.Integer("logprobs", 0, kMaxTopChat)) {
    asked.generation.n_probs = static_cast<int>(*n);
    if (echo) fields.Fail("logprobs", "log-probabilities of a prompt (echo) are not supported");
  }
  const auto best_of = fields.Integer("best_of", 1);
  if (best_of && *best_of != asked.generation.n) {
    fields.Fail("best_of", "found " + std::to_string(*best_of) + ", expected n, which is " +
                               std::to_string(asked.generation.n));
  }
  asked.arrived = request.arrived;
  asked.constraint = ReadConstraint(fields, context.options);
  RefuseUnsupported(fields);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  RunTexts(context, exchange, std::move(asked), *body);
}

void NativeCompletion(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  ApiError error;
  const auto body = ReadBody(request, error);
  if (!body) return SendError(context.metrics, *exchange, error);
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  Fields fields(*body);
  const bool return_tokens = fields.Bool("return_tokens").value_or(false);
  Asked asked = {.generation = ReadGeneration(fields, context.options, tokenizer, Dialect::kNative,
                                              context.ids.DrawSeed()),
                 .format = NativeFormat(tokenizer, return_tokens)};
  asked.arrived = request.arrived;
  asked.constraint = ReadConstraint(fields, context.options);
  RefuseUnsupported(fields);
  if (!fields.ok()) return SendError(context.metrics, *exchange, *fields.error());
  RunTexts(context, exchange, std::move(asked), *body);
}

}  // namespace winnow::server
