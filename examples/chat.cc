// Chats with a model, line by line, until the end of input:  chat MODEL.gguf [METHOD ENTRIES] With
// a method that evicts during decode the cache holds at most ENTRIES per KV head, however long the
// conversation: chat MODEL.gguf h2o 256
#include <winnow/winnow.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace {

int Fail(const winnow::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [METHOD ENTRIES], with METHOD one of\n", argv[0]);
    for (const winnow::MethodInfo& method : winnow::ListMethods()) {
      std::fprintf(stderr, "  %-20s %s\n", method.name.c_str(), method.description.c_str());
    }
    return 2;
  }
  const auto model = winnow::Model::Open(argv[1]);
  if (!model) return Fail(model.error());
  winnow::SessionOptions kept;
  if (argc == 4) kept.compression = {.method = argv[2], .size = std::atoll(argv[3])};
  auto session = model->NewSession(kept);
  if (!session) return Fail(session.error());

  // One random sequence for all answers; with Sampling alone each would start at the seed again.
  const auto sampler = model->NewSampler({.seed = 1});
  if (!sampler) return Fail(sampler.error());

  std::vector<winnow::ChatMessage> messages;
  std::string line;
  while (std::cout << "> " << std::flush && std::getline(std::cin, line)) {
    messages.push_back({"user", line});
    const auto prompt = model->ChatPrompt(messages);
    if (!prompt) return Fail(prompt.error());
    winnow::GenerateOptions options;
    options.max_tokens = 256;
    options.sampler = *sampler;
    options.on_text = [](std::string_view text) {
      std::cout << text << std::flush;
      return true;
    };
    // The common prefix of the prompt and the session is not read again.
    const auto answer = session->Generate(*prompt, options);
    if (!answer) return Fail(answer.error());
    messages.push_back({"assistant", answer->text});
    std::printf("\n[%zu tokens seen, %.0f kept, %lld bytes]\n", session->tokens().size(),
                session->kept(0).value(),
                static_cast<long long>(session->cache_bytes_with_lists()));
  }
}
