#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

const std::vector<ChatMessage> kChat = {
    {"system", " S "}, {"user", "U1 "}, {"assistant", " A1 "}, {"user", "U2"}};

std::string Text(std::string_view name, const std::vector<ChatMessage>& messages,
                 bool add_generation_prompt = true) {
  const Result<ChatTemplate> chat_template = ChatTemplate::ByName(name);
  if (!chat_template) return chat_template.error().message;
  const auto stretches = chat_template->Format(messages, add_generation_prompt);
  if (!stretches) return stretches.error().message;
  std::string text;
  for (const MarkedText& stretch : *stretches) text += stretch.text;
  return text;
}

// Every format, written out.
TEST(ChatTemplate, ChatMl) {
  EXPECT_EQ(Text("chatml", kChat),
            "<|im_start|>system\n S <|im_end|>\n<|im_start|>user\nU1 <|im_end|>\n"
            "<|im_start|>assistant\n A1 "
            "<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, Llama3Trims) {
  EXPECT_EQ(Text("llama3", kChat),
            "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, GemmaPutsTheSystemsWordsIntoTheFirstUserTurn) {
  EXPECT_EQ(Text("gemma", kChat),
            "<start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
            "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(Text("gemma", {{"user", "U"}}),
            "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n");
}

TEST(ChatTemplate, Phi3) {
  EXPECT_EQ(Text("phi3", {{"system", "S"}, {"user", "U"}}),
            "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n");
}

TEST(ChatTemplate, MistralFamily) {
  EXPECT_EQ(Text("mistral-v1", {{"user", "U"}, {"assistant", "A"}, {"user", "V"}}),
            " [INST] U [/INST] A</s> [INST] V [/INST]");
  EXPECT_EQ(Text("mistral-v3", kChat), "[INST]  S \n\nU1 [/INST] A1</s>[INST] U2[/INST]");
  EXPECT_EQ(Text("mistral-v3-tekken", kChat), "[INST] S \n\nU1 [/INST] A1 </s>[INST]U2[/INST]");
  EXPECT_EQ(Text("mistral-v7", kChat),
            "[SYSTEM_PROMPT]  S [/SYSTEM_PROMPT][INST] U1 [/INST]  A1 </s>[INST] U2[/INST]");
  EXPECT_EQ(Text("mistral-v7-tekken", kChat),
            "[SYSTEM_PROMPT] S [/SYSTEM_PROMPT][INST]U1 [/INST] A1 </s>[INST]U2[/INST]");
}

TEST(ChatTemplate, Llama2Family) {
  EXPECT_EQ(Text("llama2-sys", {{"system", "S"}, {"user", "U"}}),
            "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]");
  EXPECT_EQ(Text("llama2-sys-bos", {{"user", "U"}, {"assistant", "A"}, {"user", "V"}}),
            "[INST] U [/INST]A</s><s>[INST] V [/INST]");
  EXPECT_EQ(Text("llama2-sys-strip", kChat),
            "[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST]A1</s>[INST] U2 [/INST]");
}

TEST(ChatTemplate, OthersByName) {
  EXPECT_EQ(Text("zephyr", {{"user", "U"}}), "<|user|>\nU<|endoftext|>\n<|assistant|>\n");
  EXPECT_EQ(Text("tinyllama", {{"user", "U"}}), "<|user|>\nU</s>\n<|assistant|>\n");
  EXPECT_EQ(Text("vicuna", {{"system", "S"}, {"user", "U"}}), "S\n\nUSER: U\nASSISTANT:");
  EXPECT_EQ(Text("vicuna-orca", {{"system", "S"}, {"user", "U"}}),
            "SYSTEM: S\nUSER: U\nASSISTANT:");
  EXPECT_EQ(Text("deepseek3", {{"system", "S"}, {"user", "U"}}), "S\n\n<｜User｜>U<｜Assistant｜>");
  EXPECT_EQ(Text("command-r", {{"user", "U"}}),
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|"
            "CHATBOT_TOKEN|>");
  EXPECT_EQ(Text("falcon3", {{"user", "U"}}), "<|user|>\nU\n<|assistant|>\n");
  EXPECT_EQ(Text("smolvlm", {{"user", "U"}}), "<|im_start|>User: U<end_of_utterance>\nAssistant:");
  EXPECT_EQ(Text("granite", {{"user", "U"}}),
            "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n<|start_of_role|>assistant<|end_"
            "of_role|>");
  EXPECT_EQ(Text("openchat", {{"user", "U"}}),
            "GPT4 Correct User: U<|end_of_turn|>GPT4 Correct Assistant:");
  EXPECT_EQ(Text("monarch", {{"system", "S"}, {"user", "U"}}),
            "system\nS</s>\n<s>user\nU</s>\n<s>assistant\n");
  EXPECT_EQ(Text("phi4", {{"user", "U"}}),
            "<|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>");
}

TEST(ChatTemplate, WithoutAGenerationPromptTheTurnsAreClosed) {
  EXPECT_EQ(Text("phi3", {{"user", "U"}, {"assistant", "A"}}, false),
            "<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n");
  EXPECT_EQ(Text("phi3", {{"user", "U"}}, false), "<|user|>\nU<|end|>\n");
}

TEST(ChatTemplate, APrefilledAnswerIsLeftOpen) {
  EXPECT_EQ(Text("phi3", {{"user", "U"}, {"assistant", "A"}}),
            "<|user|>\nU<|end|>\n<|assistant|>\nA");
}

TEST(ChatTemplate, ContentsAreMarkedAsPlain) {
  const auto stretches = ChatTemplate::ChatMl().Format(
      std::vector<ChatMessage>{{"user", "<|im_end|>"}, {"user", ""}}, false);
  ASSERT_TRUE(stretches);
  EXPECT_EQ(*stretches,
            (std::vector<MarkedText>{{"<|im_start|>user\n", true},
                                     {"<|im_end|>", false},
                                     {"<|im_end|>\n<|im_start|>user\n<|im_end|>\n", true}}));
}

TEST(ChatTemplate, RolesItDoesNotKnowAreRefused) {
  EXPECT_EQ(Text("chatml", {{"user", "U"}, {"tool", "T"}}),
            "chat: message 1 has the role 'tool', expected system, user or assistant");
  EXPECT_EQ(Text("chatml", {{"x\n\x1b", "U"}}),
            "chat: message 0 has the role 'x\\x0a\\x1b', expected system, user or assistant");
}

TEST(ChatTemplate, WhereTheSystemMaySpeak) {
  EXPECT_EQ(Text("chatml", {{"user", "U"}, {"system", "S"}}, false),
            "<|im_start|>user\nU<|im_end|>\n<|im_start|>system\nS<|im_end|>\n");
  const std::string refusal =
      "chat: message 0 has the role 'system', which gemma writes into a user turn: expected a "
      "message of the user next";
  EXPECT_EQ(Text("gemma", {{"system", "S"}}), refusal);
  EXPECT_EQ(Text("gemma", {{"system", "S"}, {"assistant", "A"}}), refusal);
}

TEST(ChatTemplate, EveryNameOfTheListIsKnownAndKeepsWhatIsSaid) {
  const auto names = ChatTemplateNames();
  EXPECT_EQ(names.size(), 38u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (std::string_view name : names) {
    const std::string text =
        Text(name, {{"system", "one"}, {"user", "two"}, {"assistant", "three"}, {"user", "four"}});
    size_t at = 0;
    for (const char* said : {"one", "two", "three", "four"}) {
      at = text.find(said, at);
      ASSERT_NE(at, std::string::npos) << name << ": " << text;
    }
  }
  const std::string message = Text("klingon", {});
  EXPECT_NE(message.find("'klingon' unknown"), std::string::npos);
  EXPECT_NE(message.find("chatml, command-r"), std::string::npos);
}

std::string Detected(std::string_view source) {
  const Result<ChatTemplateChoice> choice = DetectChatTemplate(source);
  if (!choice) return choice.error().message;
  EXPECT_TRUE(choice->warning.empty()) << choice->warning;
  return std::string(choice->chat_template.name());
}

TEST(DetectChatTemplate, BySignature) {
  EXPECT_EQ(Detected("{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + "
                     "'<|im_end|>'}}"),
            "chatml");
  EXPECT_EQ(Detected("{{'<|im_start|>' + message['role'] + '<|im_sep|>' + message['content']}}"),
            "phi4");
  EXPECT_EQ(Detected("{{'<|im_start|>'}}{{message['role'] | capitalize}}: <end_of_utterance>"),
            "smolvlm");
  EXPECT_EQ(Detected("'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"),
            "llama3");
  EXPECT_EQ(
      Detected("'<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n'"),
      "gemma");
  EXPECT_EQ(Detected("'<|user|>' + '\\n' + message['content'] + '<|end|>' + '<|assistant|>'"),
            "phi3");
  EXPECT_EQ(Detected("{{ '<|user|>\\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}"),
            "tinyllama");
  EXPECT_EQ(
      Detected("{{ '<|user|>\\n' + message['content'] + '<|endoftext|>' }}{{ '<|assistant|>' }}"),
      "zephyr");
  EXPECT_EQ(Detected("{{ '<|user|>\\n' + message['content'] + '\\n' }}{{ '<|assistant|>\\n' }}"),
            "falcon3");
  EXPECT_EQ(Detected("{{ '[INST] ' + message['content'] + ' [/INST]' }}"), "llama2");
  EXPECT_EQ(Detected("{{ bos_token + '[INST] ' + content.strip() }} <<SYS>>"), "llama2-sys-bos");
  EXPECT_EQ(Detected("{{ bos_token }}{{ '[INST] ' + content.strip() }} <<SYS>>"),
            "llama2-sys-strip");
  EXPECT_EQ(Detected("{{ '[INST] ' + content }} <<SYS>>"), "llama2-sys");
  EXPECT_EQ(Detected("{{ '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}{{ '[INST]' }}"),
            "mistral-v7-tekken");
  EXPECT_EQ(Detected("{{ '[SYSTEM_PROMPT] ' + system + '[/SYSTEM_PROMPT]' }}{{ '[INST] ' }}"),
            "mistral-v7");
  EXPECT_EQ(Detected("{{ '<|start_of_role|>' + message['role'] + '<|end_of_role|>' }}"), "granite");
  EXPECT_EQ(Detected("{{ '<｜User｜>' + content }}{{ '<｜Assistant｜>' + content }}"), "deepseek3");
}

TEST(DetectChatTemplate, UnknownOnesAreChatMlWithAWarning) {
  for (const char* source : {"", "{{ messages[0]['content'] }}"}) {
    const Result<ChatTemplateChoice> choice = DetectChatTemplate(source);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->chat_template.name(), "chatml");
    EXPECT_NE(choice->warning.find("using chatml"), std::string::npos) << choice->warning;
  }
}

TEST(DetectChatTemplate, TemplatesOfMegabytesAreRefused) {
  EXPECT_EQ(Detected(std::string(kMaxChatTemplateBytes, ' ') + "x"),
            "tokenizer: tokenizer.chat_template: 1048577 bytes, expected at most 1048576");
  EXPECT_EQ(Detected(std::string(kMaxChatTemplateBytes - 12, ' ') + "<|im_start|>"), "chatml");
}

TEST(EncodeMarked, UserTextCannotBecomeControlTokens) {
  const auto tokenizer = testing::Make(testing::SmallBytePairs());  // 261 is <|end|>
  const auto encode = [&](const std::vector<MarkedText>& stretches) {
    return tokenizer->EncodeMarked(stretches);
  };
  EXPECT_EQ(encode({{"hello", false}, {"<|end|>", true}}), (std::vector<TokenId>{259, 261}));
  for (const auto& stretches : std::vector<std::vector<MarkedText>>{
           {{"hello<|end|>", false}},
           {{"<|e", true}, {"nd|>", false}},  // not even if the template's markup completes it
           {{"<|end", false}, {"|>", true}}}) {
    const std::vector<TokenId> tokens = encode(stretches);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 261), 0);
  }
}

TEST(EncodeMarked, TokensSpanStretches) {
  const auto tokenizer = testing::Make(testing::SmallBytePairs());
  EXPECT_EQ(tokenizer->EncodeMarked(std::vector<MarkedText>{{" hel", true}, {"lo", false}}),
            (std::vector<TokenId>{260}));
}

TEST(EncodeMarked, BosIsAddedOnceAndEosNever) {
  Vocabulary vocabulary = testing::SmallSentencePiece();
  vocabulary.add_eos = true;
  const auto tokenizer = testing::Make(vocabulary);
  const std::vector<MarkedText> without = {{"hello", false}};
  const std::vector<MarkedText> with = {{"<s>", true}, {"hello", false}};
  EXPECT_EQ(tokenizer->EncodeMarked(without), (std::vector<TokenId>{1, 268}));
  EXPECT_EQ(tokenizer->EncodeMarked(with), (std::vector<TokenId>{1, 268}));
  EXPECT_EQ(tokenizer->EncodeMarked(without, false), (std::vector<TokenId>{268}));
}

TEST(EncodeAfter, TextThatContinuesGetsNoSpace) {
  const auto tokenizer = testing::Make(testing::SmallSentencePiece());
  const auto after = [&](TokenId last, std::string text) {
    const MarkedText marked = {std::move(text), true};
    return tokenizer->EncodeAfter(last, {&marked, 1});
  };
  EXPECT_EQ(after(268, "hello"), (std::vector<TokenId>{267}));
  EXPECT_EQ(after(268, " hello"), (std::vector<TokenId>{268}));
  EXPECT_EQ(after(268, "<|user|>hello"), (std::vector<TokenId>{269, 268}));
  EXPECT_EQ(after(269, "hello"), (std::vector<TokenId>{268})) << "as a whole text has it";
}

}  // namespace
}  // namespace winnow::tokenizer
