// Reads a document once into a cache of 512 entries per KV head and asks several questions about
// it:
//   ask_often MODEL.gguf DOCUMENT.txt "First question?" "Second question?"
// Saves the compressed session beside the document, so that the next run does not read it again.
#include <winnow/winnow.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace {

// Returns the value, or ends the program with the error.
template <class T>
T OrExit(winnow::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

winnow::Session Read(const winnow::Model& model, const std::string& path) {
  winnow::SessionOptions options;
  options.compression.method = "winnow";  // chooses entries without the questions
  options.compression.size = 512;
  const std::string saved = path + ".session";
  if (std::ifstream(saved).good()) return OrExit(model.RestoreSession(saved, options));

  std::ifstream file(path, std::ios::binary);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  winnow::Session session = OrExit(model.NewSession(options));
  OrExit(session.Append(model.Tokenize(document)));
  OrExit(session.Save(saved));
  return session;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL.gguf DOCUMENT.txt QUESTION...\n", argv[0]);
    return 2;
  }
  const winnow::Model model = OrExit(winnow::Model::Open(argv[1]));
  const winnow::Session document = Read(model, argv[2]);
  std::printf("%zu tokens read, %lld of %lld bytes kept\n", document.tokens().size(),
              static_cast<long long>(document.cache_bytes_with_lists()),
              static_cast<long long>(document.cache_bytes_full_f16()));
  for (int i = 3; i < argc; ++i) {
    winnow::Session session = OrExit(document.Fork());  // every question starts from the same cache
    std::vector<winnow::Token> prompt(session.tokens().begin(), session.tokens().end());
    const winnow::MarkedText question = {std::string("\nQuestion: ") + argv[i] + "\nAnswer:"};
    for (const winnow::Token token : model.TokenizeAfter(prompt.back(), {&question, 1})) {
      prompt.push_back(token);
    }
    winnow::GenerateOptions options;
    options.max_tokens = 32;
    options.sampling.temperature = 0;
    options.stop = {"\n"};
    std::printf("%s%s\n", argv[i], OrExit(session.Generate(prompt, options)).text.c_str());
  }
}
