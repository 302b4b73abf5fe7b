#include "eval/tasks/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "eval/tasks/common.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::eval {
namespace {

TEST(Tasks, AreComplete) {
  std::set<std::string_view> names;
  for (const Task& task : Tasks()) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    EXPECT_FALSE(task.summary.empty()) << task.name;
    EXPECT_FALSE(task.data.empty()) << task.name;
    EXPECT_FALSE(task.repeats.empty()) << task.name;
    EXPECT_FALSE(task.columns.empty()) << task.name;
    EXPECT_FALSE(task.options.empty()) << task.name;
    EXPECT_TRUE(task.configure({})) << task.name;  // every option has a default
    EXPECT_EQ(FindTask(task.name), &task);
  }
  EXPECT_EQ(FindTask("none"), nullptr);
}

TEST(Choose, ASmallChoiceIsPartOfALargerOne) {
  const std::vector<size_t> few = Choose(100, 7, 3);
  const std::vector<size_t> many = Choose(100, 40, 3);
  EXPECT_EQ(few.size(), 7u);
  EXPECT_EQ(many.size(), 40u);
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end()));
  EXPECT_TRUE(std::includes(many.begin(), many.end(), few.begin(), few.end()));
  EXPECT_NE(Choose(100, 7, 4), few);
  EXPECT_EQ(Choose(3, 7, 1), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(Choose(3, std::nullopt, 1), (std::vector<size_t>{0, 1, 2}));
}

TEST(ChooseSamples, FromEveryGroupInOrder) {
  std::vector<Sample> samples;
  samples.reserve(20);
  for (int i = 0; i < 20; ++i) {
    samples.push_back(
        {.id = std::to_string(i), .group = i % 3 == 0 ? "a" : "b", .labels = {}, .make = {}});
  }
  const SampleOptions options = {.n_samples = 2};
  const auto chosen = ChooseSamples(samples, options);
  ASSERT_EQ(chosen.size(), 4u);
  EXPECT_EQ(std::count_if(chosen.begin(), chosen.end(),
                          [](const Sample& sample) { return sample.group == "a"; }),
            2);
  for (size_t i = 1; i < chosen.size(); ++i) {
    EXPECT_LT(std::stoi(chosen[i - 1].id), std::stoi(chosen[i].id));
  }
}

// Commands show an option that several tasks share once, so all must describe it alike.
TEST(Tasks, OptionsOfOneNameAreOne) {
  std::map<std::string, const Option*> known;
  for (const Task& task : Tasks()) {
    std::set<std::string> own;
    for (const Option& option : task.options) {
      EXPECT_TRUE(own.insert(option.name).second) << task.name << ": " << option.name;
      EXPECT_EQ(FindOption(task, option.name), &option);
      const Option& first = *known.try_emplace(option.name, &option).first->second;
      EXPECT_EQ(option.value_name, first.value_name) << task.name << ": " << option.name;
      EXPECT_EQ(option.help, first.help) << task.name << ": " << option.name;
      EXPECT_EQ(option.file_use, first.file_use) << task.name << ": " << option.name;
    }
  }
  EXPECT_EQ(FindOption(*FindTask("gsm8k"), "depths"), nullptr);
}

struct TeaOptions {
  std::optional<int64_t> cups;
  std::vector<std::string> leaves;
  bool hot = false;
};

template <class Visitor>
void Visit(TeaOptions& o, Visitor& v) {
  v("cups", o.cups, "N", "how many", ParsePositive);
  v("leaves", o.leaves, "LIST", "which", ParseWords);
  v("hot", o.hot, "not cold");
}

TEST(Options, AreReadByName) {
  const auto none = ReadOptions<TeaOptions>({}).value();
  EXPECT_EQ(none.cups, std::nullopt);
  EXPECT_FALSE(none.hot);
  const auto tea =
      ReadOptions<TeaOptions>({{"cups", "2"}, {"hot", ""}, {"leaves", "a,b"}, {"cups", "3"}})
          .value();
  EXPECT_EQ(tea.cups, 3);  // the last counts
  EXPECT_EQ(tea.leaves, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(tea.hot);
  EXPECT_EQ(ReadOptions<TeaOptions>({{"cups", "0"}}).error().message,
            "cups: found 0, expected 1 or more");
  EXPECT_EQ(ReadOptions<TeaOptions>({{"milk", "1"}}).error().message,
            "no option 'milk'; known options: cups, leaves, hot");
}

TEST(Options, AreListed) {
  const std::vector<Option> options = ListOptions<TeaOptions>();
  ASSERT_EQ(options.size(), 3u);
  EXPECT_EQ(options[0].name, "cups");
  EXPECT_EQ(options[0].value_name, "N");
  EXPECT_EQ(options[0].help, "how many");
  EXPECT_EQ(options[0].check("x").error().message, "expected a whole number, got 'x'");
  EXPECT_TRUE(options[0].check("1"));
  EXPECT_EQ(options[2].value_name, "");
}

class TaskErrors : public testing::Test {
 protected:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
  NullLog log_;
  PromptWriter prompts_{*tokenizer_, std::nullopt, "", 100};
  TaskContext context_{*tokenizer_, prompts_, 100, log_};

  std::string Refusal(const char* task, const OptionValues& given) const {
    const auto run = FindTask(task)->configure(given);
    if (!run) return run.error().message;
    const auto samples = run->samples(context_);
    return samples ? "" : samples.error().message;
  }
};

TEST_F(TaskErrors, NameOptions) {
  EXPECT_EQ(Refusal("passkey", {{"depths", "101"}}),
            "depths: found 101, expected per cent, 0 to 100");
  EXPECT_EQ(Refusal("needle", {{"needle", "A fox."}}),
            "needle: a custom needle needs question and answer");
  EXPECT_EQ(Refusal("perplexity", {{"data", "builtin"}, {"lengths", "3"}}),
            "lengths: found 3, expected 16 or more");
  EXPECT_TRUE(Refusal("gsm8k", {}).starts_with("no data: give data DIR with test*.jsonl"));
}

// A command names options as its user writes them.
TEST_F(TaskErrors, NameThemInTheCallersWords) {
  context_.option_word = [](std::string_view option) { return "--" + std::string(option); };
  EXPECT_EQ(Refusal("needle", {{"question", "Who?"}}),
            "--question and --answer belong to a custom --needle");
  EXPECT_TRUE(Refusal("gsm8k", {}).starts_with("no data: give --data DIR with test*.jsonl"));
}

TEST_F(TaskErrors, ListTheTasksThereAre) {
  EXPECT_EQ(*ChooseTasks(context_, {"a", "b", "c"}, {"c", "a"}),
            (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(ChooseTasks(context_, {"a"}, {})->size(), 1u);
  const auto wrong = ChooseTasks(context_, {"a", "b"}, {"x"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "tasks: no 'x'; known tasks: a, b");
}

TEST(FillIn, OnlyWhatIsGiven) {
  EXPECT_EQ(FillIn("{a}{b} {c} {a", {{"a", "{b}"}, {"b", "2"}}), "{b}2 {c} {a");
}

}  // namespace
}  // namespace winnow::eval
