// Continues a text with a model:  generate MODEL.gguf "Once upon a time"
#include <winnow/winnow.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.gguf PROMPT\n", argv[0]);
    return 2;
  }
  const auto model = winnow::Model::Open(argv[1]);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  auto session = model->NewSession();
  if (!session) {
    std::fprintf(stderr, "%s\n", session.error().message.c_str());
    return 1;
  }
  winnow::GenerateOptions options;
  options.max_tokens = 64;
  options.sampling.temperature = 0;  // greedy
  options.on_text = [](std::string_view text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  };
  const auto generated = session->Generate(argv[2], options);
  if (!generated) {
    std::fprintf(stderr, "%s\n", generated.error().message.c_str());
    return 1;
  }
  std::printf("\n[%zu tokens]\n", generated->tokens.size());
}
