// Writes a small llama model with random weights and a readable vocabulary, to run where no trained
// model is at hand. It generates nonsense.
//
//   make_tiny_model OUT.gguf [f32|f16] [VALUE_GAIN]
//
// VALUE_GAIN scales the values of attention from 1: 1e6 overflows an f16 cache, nan makes a damaged
// model (both need f32 weights). The file has the same bytes on every machine: vocabulary and
// weights come from fixed lists and a fixed seed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "gguf/testing/builder.h"

namespace {

using winnow::gguf::TensorType;
using winnow::gguf::testing::Builder;

constexpr int64_t kWidth = 64;
constexpr int64_t kFeedForward = 176;
constexpr int kLayers = 3;
constexpr int kHeads = 2;  // of 32 dimensions, a multiple of every cache type's block
constexpr int kKvHeads = 1;
constexpr int64_t kHeadDim = kWidth / kHeads;
constexpr uint32_t kContext = 512;
constexpr int64_t kFirstPiece = 5 + 256;  // first id after control tokens and bytes

// Pieces of English, most frequent first; "_" stands for the space before a word.
constexpr std::string_view kPieces =
    "_the _a _and _to _was _of _in _he _it _she _that _his _her _with _you _they _on _for _said "
    "_had _I _is _at _as "
    "_but _be _not _all _so _one _were _him _there _have _from _this _what _up _out _when _them "
    "_my _would _me _no _if "
    "_an _are _we _who _little _very _down _into _big _then _day _do _went _saw _could _old _man "
    "_time _upon _once _Once "
    "_The _house _water _play _wanted _happy _tree _boy _girl _named _friend _friends _like _loved "
    "_good _came _back "
    "_look _home _night _light _way _never _again _over _after _through _before _long _where _how "
    "_eyes _hand _door "
    "ing ed er ly es en al on in th he re an ou st nd is it or ar le te me ve se ll ow ay ick ood "
    "ight ound ter ther "
    ". , ! ? ' \" - : ;";

class RandomWeights {
 public:
  RandomWeights(Builder& builder, TensorType type) : builder_(builder), type_(type) {}

  // NAME.weight [cols, rows]: an input of size 1 gives outputs of size about `gain`; those of the
  // first `n_quiet` rows are a tenth of that.
  void Matrix(const std::string& name, int64_t rows, int64_t cols, double gain = 1,
              int64_t n_quiet = 0) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    const double scale = gain / std::sqrt(static_cast<double>(cols));
    for (float& value : values) value = static_cast<float>(scale * Normal());
    for (int64_t i = 0; i < n_quiet * cols; ++i) values[static_cast<size_t>(i)] *= 0.1f;
    if (type_ == TensorType::kF32) {
      builder_.TensorF32(name + ".weight", {cols, rows}, values);
      return;
    }
    std::vector<std::byte> bytes(values.size() * sizeof(uint16_t));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = winnow::FloatToHalf(values[i]);
      std::memcpy(bytes.data() + i * sizeof(half), &half, sizeof(half));
    }
    builder_.Tensor(name + ".weight", type_, {cols, rows}, bytes);
  }
  void Norm(const std::string& name) {
    builder_.TensorF32(name + ".weight", {kWidth}, std::vector<float>(kWidth, 1.0f));
  }

 private:
  double Normal() {  // the sum of twelve uniforms has variance 1
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng_.Uniform();
    return sum;
  }

  Builder& builder_;
  TensorType type_;
  winnow::Rng rng_{2024};
};

// Adds a SentencePiece-style vocabulary (control tokens, all bytes, letters, pieces); returns its
// size.
int64_t AddVocabulary(Builder& builder) {
  constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> kinds = {kUnknown, kControl, kControl, kControl, kControl};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    tokens.emplace_back(text);
    kinds.push_back(kByte);
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  const auto add = [&](std::string_view piece) {
    std::string text;
    for (const char c : piece) text += c == '_' ? "\xE2\x96\x81" : std::string(1, c);
    for (const std::string& known : tokens) {
      if (known == text) return;
    }
    tokens.push_back(text);
    kinds.push_back(kNormal);
    scores.push_back(-static_cast<float>(tokens.size()));
  };
  // Merging reaches a piece through its prefixes, so all prefixes are pieces too, after the whole
  // ones.
  std::vector<std::string_view> pieces;
  for (std::string_view rest = kPieces; !rest.empty();) {
    const size_t space = rest.find(' ');
    pieces.push_back(rest.substr(0, space));
    rest.remove_prefix(space == std::string_view::npos ? rest.size() : space + 1);
  }
  for (const std::string_view piece : pieces) add(piece);
  for (const std::string_view piece : pieces) {
    for (size_t n = piece.size() - 1; n > 0; --n) add(piece.substr(0, n));
  }
  for (const char c :
       std::string("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")) {
    add(std::string(1, c));
  }
  builder.String("tokenizer.ggml.model", "llama")
      .Strings("tokenizer.ggml.tokens", tokens)
      .Float32s("tokenizer.ggml.scores", scores)
      .Int32s("tokenizer.ggml.token_type", kinds)
      .Uint32("tokenizer.ggml.unknown_token_id", 0)
      .Uint32("tokenizer.ggml.bos_token_id", 1)
      .Uint32("tokenizer.ggml.eos_token_id", 2)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Bool("tokenizer.ggml.add_space_prefix", true)
      .String(
          "tokenizer.chat_template",
          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  return static_cast<int64_t>(tokens.size());
}

Builder TinyModel(TensorType type, double value_gain) {
  Builder builder;
  builder.String("general.architecture", "llama")
      .String("general.name", "random weights")
      .Uint32("general.file_type", static_cast<uint32_t>(type))
      .Uint32("llama.context_length", kContext)
      .Uint32("llama.embedding_length", kWidth)
      .Uint32("llama.block_count", kLayers)
      .Uint32("llama.feed_forward_length", kFeedForward)
      .Uint32("llama.attention.head_count", kHeads)
      .Uint32("llama.attention.head_count_kv", kKvHeads)
      .Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const int64_t n_tokens = AddVocabulary(builder);
  RandomWeights weights(builder, type);
  weights.Matrix("token_embd", n_tokens, kWidth, std::sqrt(static_cast<double>(kWidth)));
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    weights.Norm(block + "attn_norm");
    weights.Matrix(block + "attn_q", kWidth, kWidth, 2);  // attention neither uniform nor one-hot
    weights.Matrix(block + "attn_k", kKvHeads * kHeadDim, kWidth);
    weights.Matrix(block + "attn_v", kKvHeads * kHeadDim, kWidth, value_gain);
    weights.Matrix(block + "attn_output", kWidth, kWidth);
    weights.Norm(block + "ffn_norm");
    weights.Matrix(block + "ffn_gate", kFeedForward, kWidth, 2);
    weights.Matrix(block + "ffn_up", kFeedForward, kWidth);
    weights.Matrix(block + "ffn_down", kWidth, kFeedForward);
  }
  weights.Norm("output_norm");
  weights.Matrix("output", n_tokens, kWidth, 2, kFirstPiece);  // words rather than single bytes
  return builder;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string type = argc > 2 ? argv[2] : "f16";
  if (argc < 2 || argc > 4 || (type != "f32" && type != "f16")) {
    std::fprintf(stderr, "usage: make_tiny_model OUT.gguf [f32|f16] [VALUE_GAIN]\n");
    return 2;
  }
  const double value_gain = argc > 3 ? std::strtod(argv[3], nullptr) : 1;
  TinyModel(type == "f32" ? TensorType::kF32 : TensorType::kF16, value_gain).Write(argv[1]);
  std::fprintf(stderr, "%s: a tiny model with random weights; what it says is nonsense\n", argv[1]);
  return 0;
}
