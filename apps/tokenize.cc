#include "commands.h"
#include "options.h"
#include "report/record.h"
#include "text_input.h"
#include "tokenizer/utf8.h"

namespace winnow::apps {
namespace {

// 'piece' on one line: control characters and invalid UTF-8 are escaped.
std::string Quoted(std::string_view piece) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  while (!piece.empty()) {
    const size_t length = tokenizer::CharacterLength(piece);
    if (length > 1) {
      out += piece.substr(0, length);
      piece.remove_prefix(length);
      continue;
    }
    const char c = piece.front();
    piece.remove_prefix(1);
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == '\'') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte >= 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

int Tokenize(Arguments arguments) {
  std::string model = kBundled;
  TextSource source{.text = {}, .file = {}, .raw = true};
  tokenizer::EncodeOptions options;
  bool json = false;
  bool ids = false;
  bool count = false;
  FlagTable table("tokenize", "[-m FILE] (-p TEXT | -f FILE) [flags]",
                  "Prints the tokens of a text, one 'id -> piece' a line. Works on files that hold "
                  "only a vocabulary. The text is taken byte for byte.");
  table.Add({"-m", "--model"}, "FILE", kModelHelp, &model);
  table.Add({"-p", "--prompt"}, "TEXT", "the text", &source.text);
  table.Add({"-f", "--file"}, "FILE",
            "read it from a file, '-' for standard input. Without -p and -f, a pipe is read",
            &source.file);
  table.Add(
      {{"--stdin"}, "", "read standard input, as -f -", "", {}, false, [&source](std::string_view) {
         source.file = "-";
         return Result<void>();
       }});
  table.Switch({"--no-bos"}, "without the tokens the model wants around a text (BOS, EOS)",
               &options.add_special, false);
  table.Switch({"--no-parse-special"}, "control tokens written in the text stay text",
               &options.parse_special, false);
  table.Switch({"--json"}, "print {\"tokens\": [...]}", &json);
  table.Switch({"--ids"}, "print only the ids, as [1, 2, 3]", &ids);
  table.Switch({"--show-count"}, "print the number of tokens at the end", &count);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (source.text && source.file) return Misuse("tokenize", "give only one of -p and -f");

  ConsoleLog log;
  const auto file = OpenModelFile(model, log);
  if (!file) return Fail(file.error());
  const auto tokenizer = tokenizer::Tokenizer::Load(*file);
  if (!tokenizer) return Fail(Error{model + ": " + tokenizer.error().message});
  const auto text = ReadText(source, log);
  if (!text) return Fail(text.error());

  const std::vector<tokenizer::TokenId> tokens = (*tokenizer)->Encode(*text, options);
  if (json) {
    Print(report::ToJson(report::Record{{"tokens", report::MakeList(tokens)}}) + "\n");
  } else if (ids) {
    std::string list;
    for (const tokenizer::TokenId token : tokens) {
      list += (list.empty() ? "" : ", ") + std::to_string(token);
    }
    Print("[" + list + "]\n");
  } else {
    for (const tokenizer::TokenId token : tokens) {
      Print(PadLeft(std::to_string(token), 6) + " -> " + Quoted((*tokenizer)->Piece(token, true)) +
            "\n");
    }
  }
  if (count && !json) Print("Total number of tokens: " + std::to_string(tokens.size()) + "\n");
  return FinishOutput();
}

}  // namespace winnow::apps
