// Perplexity of texts: sliding windows, windows in two halves, or whole texts as streams.
#include <algorithm>
#include <map>
#include <memory>

#include "eval/run/token_stream.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"
#include "eval/tasks/texts.h"
#include "eval/workloads/window.h"

namespace winnow::eval {
namespace {

constexpr int64_t kMinTokens = 16;  // minimum length of a window
// Or the context, if that is less [TreeKV's stride on PG19].
constexpr int64_t kDefaultWindow = 2048;

struct WindowOptions : DataOptions {
  std::vector<int64_t> lengths;
  std::optional<int64_t> chunks;  // maximum number of windows of a text
};

template <class Visitor>
void Visit(WindowOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitLengths(o.lengths, v);
  v("chunks", o.chunks, "N", "windows of a text at most", ParsePositive);
}

enum class Protocol { kSliding, kHalves, kStream };

Result<Protocol> ParseProtocol(std::string_view text) {
  if (text == "sliding") return Protocol::kSliding;
  if (text == "halves") return Protocol::kHalves;
  if (text == "stream") return Protocol::kStream;
  return Error{"found '" + std::string(text) + "', expected sliding, halves or stream"};
}

struct TextOptions : WindowOptions {
  Protocol protocol = Protocol::kSliding;
  std::optional<int64_t> stride;  // tokens between windows; none: half a window
  int64_t every = 1000;           // tokens between points of a curve
};

template <class Visitor>
void Visit(TextOptions& o, Visitor& v) {
  Visit(static_cast<WindowOptions&>(o), v);
  v("protocol", o.protocol, "NAME",
    "sliding (windows that overlap, read token by token), halves (the first half of a window is a "
    "prompt), or stream (all texts as one) [sliding]",
    ParseProtocol);
  v("stride", o.stride, "N", "tokens between sliding windows [half a window]", ParsePositive);
  v("every", o.every, "N", "tokens between points of a stream's curve [1000]", ParsePositive);
}

// The tokens of a window. If the model wants BOS, it replaces the first one.
std::vector<TokenId> CutWindow(std::span<const TokenId> text,
                               const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> tokens(text.begin(), text.end());
  if (tokenizer.adds_bos() && tokenizer.bos()) tokens[0] = *tokenizer.bos();
  return tokens;
}

using Tokens = std::shared_ptr<const std::vector<TokenId>>;

struct Cut {
  int64_t begin = 0;
  int64_t n_tokens = 0;
  Window window;  // without tokens
};

// Windows of `length` that advance by `stride`; each scores the tokens that the one before did not.
// The last one is as long as the rest, so that every token but the first is scored once. [TreeKV,
// Tables 1 and 2; the end is ours: the paper does not say]
std::vector<Cut> Slide(int64_t n_tokens, int64_t length, int64_t stride) {
  std::vector<Cut> cuts;
  int64_t n_scored = 1;
  for (int64_t begin = 0; n_scored < n_tokens; begin += stride) {
    Cut cut = {begin, std::min(length, n_tokens - begin), {}};
    cut.window.score_from = n_scored - begin;
    n_scored = begin + cut.n_tokens;
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

std::vector<Cut> Halve(int64_t n_tokens, int64_t length, bool against_full) {
  std::vector<Cut> cuts;
  for (int64_t begin = 0; begin + length <= n_tokens; begin += length) {
    Cut cut = {begin, length, {}};
    cut.window.mode = Window::Mode::kHalves;
    cut.window.against_full = against_full;
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

Result<std::vector<int64_t>> LengthsFrom(const TaskContext& context, const WindowOptions& options) {
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {std::min(context.context, kDefaultWindow)};
  for (const int64_t length : lengths) {
    if (length < kMinTokens) {
      return OptionError(context, "lengths",
                         "found " + std::to_string(length) + ", expected " +
                             std::to_string(kMinTokens) + " or more");
    }
  }
  return lengths;
}

void AddSamples(const TaskContext& context, const std::string& name, const Tokens& tokens,
                int64_t length, std::vector<Cut> cuts, std::vector<Sample>& samples) {
  for (size_t i = 0; i < cuts.size(); ++i) {
    samples.push_back(
        {.id = name + "/" + std::to_string(length) + "/" + std::to_string(i),
         .group = std::to_string(length),
         .labels = {{"text", name}, {"length", length}},
         .make = [&context, tokens, cut = cuts[i]]() -> Result<std::unique_ptr<Workload>> {
           Window window = cut.window;
           window.tokens = CutWindow(std::span(*tokens).subspan(static_cast<size_t>(cut.begin),
                                                                static_cast<size_t>(cut.n_tokens)),
                                     context.tokenizer);
           return MakeWorkload(std::move(window));
         }});
  }
}

// Windows of the chosen texts; cut(n_tokens, length) makes the windows of one text.
template <typename Cutter>
Result<std::vector<Sample>> WindowSamples(const TaskContext& context, const WindowOptions& options,
                                          const Cutter& cut) {
  WINNOW_TRY(NeedData(context, options.data, kTextData));
  WINNOW_ASSIGN(const std::vector<NamedText> texts, ReadTexts(options.data));
  WINNOW_ASSIGN(const std::vector<int64_t> lengths, LengthsFrom(context, options));
  std::vector<Sample> samples;
  for (const size_t i : Choose(texts.size(), options.n_samples, options.seed)) {
    const auto tokens =
        std::make_shared<const std::vector<TokenId>>(context.tokenizer.Encode(texts[i].text));
    const auto n_tokens = static_cast<int64_t>(tokens->size());
    for (const int64_t length : lengths) {
      std::vector<Cut> cuts = cut(n_tokens, length);
      if (n_tokens < length) {
        context.log.Warning(texts[i].name + " has only " + std::to_string(n_tokens) +
                            (cuts.empty() ? " tokens: no window of " : " tokens: less than ") +
                            std::to_string(length));
      }
      if (options.chunks) {
        cuts.resize(std::min(cuts.size(), static_cast<size_t>(*options.chunks)));
      }
      AddSamples(context, texts[i].name, tokens, length, std::move(cuts), samples);
    }
  }
  if (samples.empty()) return Error{options.data + ": no text is as long as a window"};
  return samples;
}

// Opens the joined texts as one stream of tokens.
NextTokens OpenTexts(const tokenizer::Tokenizer& tokenizer, const std::vector<TextPlace>& places) {
  const auto reader = std::make_shared<TextReader>(places);
  const auto stream = std::make_shared<TokenStream>(tokenizer, [reader] { return reader->Next(); });
  return [stream](std::vector<TokenId>& tokens) { return stream->Next(tokens); };
}

// The number of tokens in a stream, and the hash of its first n tokens for each length n and for
// all.
struct Survey {
  int64_t n_tokens = 0;
  std::map<int64_t, uint64_t> hashes;  // by number of tokens
};

Result<Survey> CountTextTokens(const NextTokens& next, const std::vector<int64_t>& lengths) {
  Survey survey;
  Fingerprint all;
  std::vector<TokenId> block;
  for (;;) {
    block.clear();
    WINNOW_ASSIGN(const bool more, next(block));
    if (!more) break;
    for (const TokenId token : block) {
      all.Add(static_cast<int64_t>(token));
      ++survey.n_tokens;
      if (std::find(lengths.begin(), lengths.end(), survey.n_tokens) != lengths.end()) {
        survey.hashes[survey.n_tokens] = all.value();
      }
    }
  }
  survey.hashes[survey.n_tokens] = all.value();
  return survey;
}

// The chosen texts, joined, as one stream for each length (by default of all tokens). They are read
// once to be counted, and again whenever a method runs on them.
Result<std::vector<Sample>> Streams(const TaskContext& context, const TextOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kTextData));
  WINNOW_ASSIGN(const std::vector<TextPlace> texts, FindTexts(options.data));
  std::vector<TextPlace> chosen;
  for (const size_t i : Choose(texts.size(), options.n_samples, options.seed)) {
    chosen.push_back(texts[i]);
  }
  std::vector<int64_t> lengths = options.lengths;
  WINNOW_ASSIGN(const Survey survey,
                CountTextTokens(OpenTexts(context.tokenizer, chosen), lengths));
  if (lengths.empty()) lengths = {survey.n_tokens};
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    if (length < kMinTokens || length > survey.n_tokens) {
      return OptionError(context, "lengths",
                         "found " + std::to_string(length) + ", the texts have " +
                             std::to_string(survey.n_tokens) + " tokens, a stream at least " +
                             std::to_string(kMinTokens));
    }
    const LongText text = {
        .open = [&context, chosen] { return OpenTexts(context.tokenizer, chosen); },
        .n_tokens = length,
        .hash = survey.hashes.at(length)};
    samples.push_back(
        {.id = "stream/" + std::to_string(length) + "/0",
         .group = std::to_string(length),
         .labels = {{"text", "stream"}, {"length", length}},
         .make = [text, every = options.every]() -> Result<std::unique_ptr<Workload>> {
           Window window;
           window.text = text;
           window.every = every;
           return MakeWorkload(std::move(window));
         }});
  }
  return samples;
}

Result<std::vector<Sample>> PerplexitySamples(const TaskContext& context,
                                              const TextOptions& options) {
  if (options.protocol == Protocol::kStream) return Streams(context, options);
  if (options.protocol == Protocol::kHalves) {
    return WindowSamples(context, options, [](int64_t n_tokens, int64_t length) {
      return Halve(n_tokens, length, false);
    });
  }
  WINNOW_ASSIGN(const std::vector<int64_t> lengths, LengthsFrom(context, options));
  for (const int64_t length : lengths) {
    if (options.stride && *options.stride >= length) {
      return OptionError(context, "stride",
                         "found " + std::to_string(*options.stride) + ", windows of " +
                             std::to_string(length) + " must overlap");
    }
  }
  return WindowSamples(context, options, [&](int64_t n_tokens, int64_t length) {
    return Slide(n_tokens, length, options.stride.value_or(length / 2));
  });
}

Result<std::vector<Sample>> KldSamples(const TaskContext& context, const WindowOptions& options) {
  return WindowSamples(context, options, [](int64_t n_tokens, int64_t length) {
    return Halve(n_tokens, length, true);
  });
}

}  // namespace

Task PerplexityTask() {
  return WithOptions<TextOptions>(
      {.name = "perplexity",
       .summary = "how well a text is predicted: windows that slide over it, windows of which the "
                  "second half is decoded, or one stream of any length with its curve",
       .data = kTextData,
       .repeats = "TreeKV Tables 1 and 2, Figures 4 and 5; D2O Figure 6; EMS Figure 5",
       .columns =
           {{.name = "nll", .title = "perplexity", .kind = Column::Kind::kPerplexity, .digits = 4},
            {.name = "nll", .title = "NLL", .kind = Column::Kind::kMean, .digits = 4}},
       .averages_groups = false},
      PerplexitySamples, [](const TextOptions& options, TaskRun& run) {
        run.reads_token_by_token = options.protocol != Protocol::kHalves;
      });
}

Task KldTask() {
  return WithOptions<WindowOptions>(
      {.name = "kld",
       .summary = "how far the next-token distributions are from the full cache's over the second "
                  "half of each window",
       .data = kTextData,
       .repeats = "none of the five papers' tables; the most sensitive measure of what a method "
                  "loses",
       .columns =
           {{.name = "kld",
             .title = "KLD",
             .kind = Column::Kind::kMean,
             .digits = 5,
             .relative = false,
             .logarithmic = true},
            {.name = "same_top", .title = "same top"},
            {.name = "p_difference", .title = "p change", .relative = false},
            {.name = "nll", .title = "perplexity", .kind = Column::Kind::kPerplexity, .digits = 4}},
       .averages_groups = false},
      KldSamples);
}

}  // namespace winnow::eval
