#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "compression/registry.h"
#include "server/openai/generation_fields.h"
#include "server/openai/handlers.h"

namespace winnow::server {
namespace {

report::Record ModelRecord(const Context& context) {
  const ModelInfo& model = context.backend.model();
  return {
      {"id", model.name},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "winnow"},
      {"meta", report::Record{{"vocab_type", std::string(context.backend.tokenizer().model_name())},
                              {"n_vocab", context.backend.tokenizer().vocabulary_size()},
                              {"n_ctx_train", model.trained_context},
                              {"n_ctx", model.context},
                              {"n_embd", model.embedding},
                              {"n_params", model.n_parameters},
                              {"size", model.n_bytes}}}};
}

using Running = runtime::SchedulerState::Running;

// The number of the slot that a session stands for (SlotSession); no value: none.
std::optional<int64_t> ParseSlot(const std::string& session) {
  const size_t digits = session.find_last_not_of("0123456789") + 1;
  int64_t slot = 0;
  const auto parsed =
      std::from_chars(session.data() + digits, session.data() + session.size(), slot);
  if (parsed.ec != std::errc() || session != SlotSession(slot)) return std::nullopt;
  return slot;
}

// The sequence at each slot; null: none. One of a session slot-N (id_slot N) is at slot N, the
// others are at free slots, in the order in which they run.
std::vector<const Running*> PlaceInSlots(const std::vector<Running>& running, size_t n_slots) {
  std::vector<const Running*> places(std::max(n_slots, running.size()));
  std::vector<const Running*> others;
  for (const Running& sequence : running) {
    const std::optional<int64_t> slot = ParseSlot(sequence.session);
    const auto place = static_cast<size_t>(slot.value_or(-1));
    if (place < n_slots && places[place] == nullptr) {
      places[place] = &sequence;
    } else {
      others.push_back(&sequence);  // or another choice of the same request
    }
  }
  auto free = places.begin();
  for (const Running* sequence : others) {
    free = std::find(free, places.end(), nullptr);
    *free = sequence;
  }
  return places;
}

}  // namespace

void ListModels(Context& context, const HttpRequest&, const ExchangePtr& exchange) {
  SendJson(context, *exchange,
           report::Record{{"object", "list"}, {"data", report::List{ModelRecord(context)}}});
}

void GetModel(Context& context, const ExchangePtr& exchange, const std::string& id) {
  if (id != context.backend.model().name) {
    return SendError(
        context.metrics, *exchange,
        {.status = 404,
         .message = "no model '" + id + "'; this server has '" + context.backend.model().name + "'",
         .param = "model",
         .code = "model_not_found"});
  }
  SendJson(context, *exchange, ModelRecord(context));
}

// The values of kv_method, in the order of the documentation.
void ListMethods(Context& context, const HttpRequest&, const ExchangePtr& exchange) {
  report::List list;
  for (const compression::MethodEntry& entry : compression::Methods()) {
    const auto method = compression::MakeMethod(entry.name);
    if (!method) continue;  // its parameters have no defaults
    const compression::Traits& traits = (*method)->traits();
    list.emplace_back(
        report::Record{{"id", std::string(entry.name)},
                       {"object", "method"},
                       {"summary", std::string(entry.summary)},
                       {"source", std::string(entry.source)},
                       {"needs_budget", traits.budget.needed},
                       {"min_size", traits.budget.min},
                       {"holds_budget", traits.budget.held},
                       {"needs_question", (*method)->needs_question()},
                       {"reassigns_positions", traits.storage.ReassignsPositions()},
                       {"compresses_prompt", traits.decisions.Evicts(compression::Phase::kPrefill)},
                       {"evicts_in_decode", traits.decisions.evicts_in_decode}});
  }
  SendJson(context, *exchange, report::Record{{"object", "list"}, {"data", std::move(list)}});
}

void Props(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  if (request.method == "POST") {
    return SendError(
        context.metrics, *exchange,
        {.status = 501, .message = "settings are made by flags when the server starts"});
  }
  const ModelInfo& model = context.backend.model();
  Generation defaults;
  defaults.sampler = context.options.sampler;
  const tokenizer::Tokenizer& tokenizer = context.backend.tokenizer();
  const auto text_of = [&](std::optional<tokenizer::TokenId> token) {
    return token ? std::string(tokenizer.Text(*token)) : std::string();
  };
  SendJson(context, *exchange,
           report::Record{
               {"default_generation_settings",
                report::Record{{"n_ctx", model.context}, {"params", SettingsRecord(defaults)}}},
               {"total_slots", context.options.n_slots},
               {"model_alias", model.name},
               {"model_path", model.path},
               {"chat_template", context.prompts.source()},
               {"chat_template_name", context.prompts.name()},
               {"bos_token", text_of(tokenizer.bos())},
               {"eos_token", text_of(tokenizer.eos())},
               {"modalities", report::Record{{"vision", false}, {"audio", false}}},
               {"kv", report::Record{{"method", context.options.kv.method},
                                     {"decode", context.options.kv.decode},
                                     {"size", context.options.kv.size},
                                     {"ratio", context.options.kv.ratio},
                                     {"memory", context.options.kv.memory_bytes},
                                     {"n_layers", model.n_layers},
                                     {"n_kv_heads", model.n_kv_heads}}},
               {"build_info", context.options.build}});
}

void Slots(Context& context, const HttpRequest& request, const ExchangePtr& exchange) {
  if (!context.options.slots) {
    return SendError(
        context.metrics, *exchange,
        {.status = 501,
         .message = "this server was started with " + std::string(context.options.words.no_slots)});
  }
  const runtime::SchedulerState state = context.backend.state();
  const size_t n_slots = static_cast<size_t>(std::max(context.options.n_slots, 1));
  if (state.running.size() >= n_slots && !request.Query("fail_on_no_slot").empty()) {
    return SendError(context.metrics, *exchange,
                     {.status = 503, .message = "no slot is free", .code = "no_slot"});
  }
  const std::vector<const Running*> places = PlaceInSlots(state.running, n_slots);
  const int64_t n_ctx = context.backend.model().context;
  report::List slots;
  for (size_t id = 0; id < places.size(); ++id) {
    const Running* running = places[id];
    report::Record slot = {
        {"id", static_cast<int64_t>(id)},
        {"id_task", running == nullptr ? int64_t{-1} : static_cast<int64_t>(running->id)},
        {"n_ctx", n_ctx},
        {"is_processing", running != nullptr}};
    if (running != nullptr) {
      slot.Add("session", running->session);
      slot.Add("prefilling", running->prefilling);
      slot.Add("n_prompt", running->n_prompt);
      slot.Add("n_done", running->n_done);
      slot.Add("reserved_bytes", running->reserved_bytes);
      slot.Add("next_token", report::Record{{"n_decoded", running->n_generated}});
    }
    slots.emplace_back(std::move(slot));
  }
  SendJson(context, *exchange, std::move(slots));
}

void MetricsPage(Context& context, const HttpRequest&, const ExchangePtr& exchange) {
  if (!context.options.metrics) {
    return SendError(
        context.metrics, *exchange,
        {.status = 501,
         .message = "start the server with " + std::string(context.options.words.metrics)});
  }
  HttpResponse response = {
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = context.metrics.Text(context.backend.state(), context.backend.model())};
  context.metrics.OnResponse(200);
  exchange->Send(std::move(response));
}

}  // namespace winnow::server
