#include "winnow/model.h"

#include <ctime>
#include <utility>

#include "api/convert.h"
#include "api/impl.h"
#include "base/log.h"
#include "runtime/session_file.h"

namespace winnow {
namespace {

class CallbackLog final : public Log {
 public:
  explicit CallbackLog(const std::function<void(std::string_view)>& on_warning)
      : on_warning_(on_warning) {}
  void Write(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::kWarning && on_warning_) on_warning_(message);
  }

 private:
  const std::function<void(std::string_view)>& on_warning_;
};

constexpr int kMaxToolLevels = 64;

chat::WriterOptions WriterOptionsFrom(const ChatOptions& options) {
  if (chat::IsTemplateSource(options.chat_template)) return {.source = options.chat_template};
  return {.built_in = options.chat_template};
}

Result<chat::Conversation> ConversationFrom(std::span<const ChatMessage> messages,
                                            const ChatOptions& options) {
  chat::Conversation conversation;
  for (const ChatMessage& message : messages) {
    conversation.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  if (!options.tools.empty()) {
    bool too_deep = false;  // what is deeper is dropped, so that nothing recurses into it
    const auto keep = [&](int depth, nlohmann::ordered_json::parse_event_t,
                          const nlohmann::ordered_json&) {
      too_deep = too_deep || depth > kMaxToolLevels;
      return depth <= kMaxToolLevels;
    };
    conversation.tools = nlohmann::ordered_json::parse(options.tools, keep, /*throw=*/false);
    if (too_deep) {
      return Error{
          .message = "tools: nested more than " + std::to_string(kMaxToolLevels) + " levels deep",
          .code = ErrorCode::kInvalid};
    }
    if (!conversation.tools.is_array()) {
      return Error{.message = "tools: expected a JSON array of tools as in OpenAI's API",
                   .code = ErrorCode::kInvalid};
    }
  }
  conversation.add_generation_prompt = options.add_generation_prompt;
  conversation.unix_time = std::time(nullptr);
  const auto now = static_cast<time_t>(conversation.unix_time);
  std::tm local = {};
  if (localtime_r(&now, &local) != nullptr) conversation.utc_offset_seconds = local.tm_gmtoff;
  return conversation;
}

}  // namespace

Result<Model> Model::Open(const std::string& path, const ModelOptions& options) {
  CallbackLog log(options.on_warning);
  auto impl = std::make_shared<Impl>();
  impl->on_warning = options.on_warning;
  WINNOW_ASSIGN(impl->engine,
                api::WithCode(runtime::Engine::Open({.model_path = path,
                                                     .n_threads = options.threads,
                                                     .target = "",
                                                     .context = options.context,
                                                     .check_tensors = options.check_tensors,
                                                     .deterministic = options.deterministic},
                                                    log),
                              ErrorCode::kFormat));
  return Model(std::move(impl));
}

std::string_view Model::architecture() const {
  return impl_->engine->model().hyperparameters().architecture;
}
int64_t Model::n_parameters() const { return impl_->engine->model().n_parameters(); }
int Model::n_layers() const { return impl_->engine->model().hyperparameters().n_layers; }
Result<int> Model::n_kv_heads(int layer) const {
  if (layer < 0 || layer >= n_layers()) {
    return Error{.message = "n_kv_heads: found layer " + std::to_string(layer) +
                            ", expected 0 to " + std::to_string(n_layers() - 1),
                 .code = ErrorCode::kInvalid};
  }
  return impl_->engine->model().cache_shape().layer(layer).n_kv_heads;
}
int64_t Model::context() const { return impl_->engine->model().context(); }
int64_t Model::vocabulary_size() const { return impl_->engine->tokenizer().vocabulary_size(); }

std::vector<Token> Model::Tokenize(std::string_view text, const TokenizeOptions& options) const {
  return impl_->engine->tokenizer().Encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
}

std::string Model::Detokenize(std::span<const Token> tokens) const {
  return impl_->engine->tokenizer().Decode(tokens);
}

bool Model::EndsGeneration(Token token) const {
  return impl_->engine->tokenizer().IsEndOfGeneration(token);
}

Result<std::vector<Token>> Model::ChatPrompt(std::span<const ChatMessage> messages,
                                             const ChatOptions& options) const {
  WINNOW_ASSIGN(const chat::Conversation conversation, ConversationFrom(messages, options));
  const runtime::Engine& engine = *impl_->engine;
  const chat::PromptWriter* writer = impl_->writer.get();
  std::unique_ptr<const chat::PromptWriter> made;
  if (writer == nullptr || !options.chat_template.empty()) {
    WINNOW_ASSIGN(chat::PromptWriter of_options,
                  api::WithCode(chat::PromptWriter::Make(engine.file(), engine.tokenizer(),
                                                         WriterOptionsFrom(options)),
                                ErrorCode::kInvalid));
    made = std::make_unique<const chat::PromptWriter>(std::move(of_options));
    if (impl_->on_warning) {
      for (const std::string& warning : made->warnings()) impl_->on_warning(warning);
    }
    writer = made.get();
    if (options.chat_template.empty()) impl_->writer = std::move(made);
  }
  WINNOW_ASSIGN(const chat::Prompt prompt,
                api::WithCode(writer->Write(conversation), ErrorCode::kInvalid));
  if (!prompt.warning.empty() && impl_->on_warning) impl_->on_warning(prompt.warning);
  return engine.tokenizer().EncodeMarked(prompt.text);
}

Result<Session> Model::NewSession(const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, api::Convert(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session,
                api::WithCode(runtime::Session::Make(*impl_->engine, wanted), ErrorCode::kInvalid));
  return Session(std::move(impl));
}

Result<Session> Model::RestoreSession(const std::string& path,
                                      const SessionOptions& options) const {
  WINNOW_ASSIGN(const runtime::SessionOptions wanted, api::Convert(options));
  auto impl = std::make_unique<Session::Impl>();
  impl->model = impl_;
  impl->on_warning = impl_->on_warning;
  WINNOW_ASSIGN(impl->session, api::WithCode(runtime::RestoreSession(*impl_->engine, wanted, path),
                                             ErrorCode::kFormat));
  return Session(std::move(impl));
}

Result<Scheduler> Model::NewScheduler(const SchedulerOptions& options) const {
  return Scheduler::Make(impl_, impl_->engine.get(), options);
}

}  // namespace winnow
