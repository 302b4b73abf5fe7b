// How every task scores answers: the perfect one scores 1; the same words in another order, or
// another answer, do not. Data files have their published format; no model is run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "eval/tasks/task.h"
#include "eval/workloads/choices.h"
#include "eval/workloads/question.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::eval {
namespace {

using Scores = std::map<std::string, double>;

Scores ByName(const std::vector<Score>& scores) {
  Scores found;
  for (const Score& score : scores) found[score.name] = score.value;
  return found;
}

class TaskScores : public testing::Test {
 protected:
  TaskScores() {
    std::string name = testing::TempDir() + "winnow-scores-XXXXXX";
    folder_ = mkdtemp(name.data());
    Set("data", folder_);
  }
  ~TaskScores() override { std::filesystem::remove_all(folder_); }

  void Set(const std::string& option, const std::string& text) {
    given_.emplace_back(option, text);
  }

  void File(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  // The workload of a sample, the only one if `id` is empty.
  std::unique_ptr<Workload> FirstWorkload(const char* task, const std::string& id = "") {
    const auto run = FindTask(task)->configure(given_);
    EXPECT_TRUE(run) << run.error().message;
    if (!run) return nullptr;
    const auto samples = run->samples(context_);
    EXPECT_TRUE(samples) << samples.error().message;
    if (!samples) return nullptr;
    for (const Sample& sample : *samples) {
      if (!id.empty() && sample.id != id) continue;
      auto workload = sample.make();
      EXPECT_TRUE(workload) << sample.id << ": " << workload.error().message;
      return workload ? std::move(*workload) : nullptr;
    }
    ADD_FAILURE() << task << " has no sample " << id;
    return nullptr;
  }
  // The scores of an answer to that sample.
  Scores Score(const char* task, const std::string& id, const std::string& answer) {
    const auto workload = FirstWorkload(task, id);
    const Question* question = workload ? AsQuestion(*workload) : nullptr;
    if (question == nullptr) {
      ADD_FAILURE() << task << " asks no question";
      return {};
    }
    return ByName(question->score(answer));
  }
  double First(const char* task, const std::string& id, const std::string& answer) {
    return Score(task, id, answer)[FindTask(task)->columns.front().name];
  }
  Scores Weigh(const char* task, const std::string& id, const std::vector<double>& log_probs) {
    const auto workload = FirstWorkload(task, id);
    const Choices* choices = workload ? AsChoices(*workload) : nullptr;
    if (choices == nullptr || choices->continuations.size() != log_probs.size()) {
      ADD_FAILURE() << task << " weighs no " << log_probs.size() << " choices";
      return {};
    }
    return ByName(choices->score(log_probs));
  }

  // The error of a task that makes no samples.
  std::string Refusal(const char* task) const {
    const auto run = FindTask(task)->configure(given_).value();
    const auto samples = run.samples(context_);
    return samples ? "" : samples.error().message;
  }

  std::string folder_;
  OptionValues given_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
  NullLog log_;
  PromptWriter prompts_{*tokenizer_, std::nullopt, "", 20000};
  TaskContext context_{*tokenizer_, prompts_, 20000, log_};
};

std::string Repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST_F(TaskScores, Needle) {
  File("a.txt", Repeated("The old man saw a light in the water. ", 100));
  Set("lengths", "2000");
  Set("depths", "50");
  const std::string answer = "Eat a sandwich and sit in Dolores Park on a sunny day.";
  const Scores right = Score("needle", "", answer);
  EXPECT_EQ(right.at("exact"), 1);
  EXPECT_EQ(right.at("key_words"), 1);
  EXPECT_GT(right.at("rouge1"), 0.6);  // compared with the whole sentence
  const Scores shuffled =
      Score("needle", "", "day sunny a on Park Dolores in sit and sandwich eat");
  EXPECT_EQ(shuffled.at("exact"), 0);
  EXPECT_EQ(shuffled.at("key_words"), 1);  // words in any order
  EXPECT_EQ(Score("needle", "", "fly a kite").at("key_words"), 0);
  EXPECT_EQ(Score("needle", "", "").at("rouge1"), 0);

  Set("needle", "code");
  const auto workload = FirstWorkload("needle");
  const std::string code = AsQuestion(*workload)->references.at(0);
  EXPECT_EQ(ByName(AsQuestion(*workload)->score("It is " + code + ".")).at("exact"), 1);
  std::string wrong = code;
  wrong[0] = wrong[0] == '9' ? '1' : '9';
  EXPECT_EQ(ByName(AsQuestion(*workload)->score(wrong)).at("exact"), 0);
}

TEST_F(TaskScores, Ruler) {
  File("vt.jsonl", R"({"index": 0, "input": "x", "outputs": ["VAR1", "VAR2"], "length": 1})");
  File("qa_1.jsonl",
       R"({"index": 0, "input": "x", "outputs": ["Paris", "the city"], "length": 1})");
  EXPECT_EQ(First("ruler", "vt/0", "var2 and var1"), 1);
  EXPECT_EQ(First("ruler", "vt/0", "1VAR 2VAR VAR2"), 0.5);
  EXPECT_EQ(First("ruler", "vt/0", ""), 0);
  EXPECT_EQ(First("ruler", "qa_1/0", "in PARIS"), 1);  // any of them counts
  EXPECT_EQ(First("ruler", "qa_1/0", "city the"), 0);
}

TEST_F(TaskScores, KvRetrieval) {
  File("kv-retrieval-2_keys.jsonl",
       R"({"ordered_kv_records": [["k", "ab-cd"], ["m", "x"]], "key": "k", "value": "ab-cd"})");
  EXPECT_EQ(First("kv-retrieval", "", " \"ab-cd\""), 1);
  EXPECT_EQ(First("kv-retrieval", "", "cd-ab"), 0);
}

TEST_F(TaskScores, LongEval) {
  File("200_lines.jsonl", R"({"prompt": "x", "expected_number": 1732})");
  File("5_topics.jsonl", R"({"prompt": "x", "topics": ["old ships", "wine"]})");
  EXPECT_EQ(First("longeval", "200_lines.jsonl/0", " <1732>, not 99"), 1);
  EXPECT_EQ(First("longeval", "200_lines.jsonl/0", "2371"), 0);
  EXPECT_EQ(First("longeval", "200_lines.jsonl/0", "99 or 1732"), 0);  // the first number counts
  EXPECT_EQ(First("longeval", "200_lines.jsonl/0", "17321"), 0);
  EXPECT_EQ(First("longeval", "200_lines.jsonl/0", ""), 0);
  EXPECT_EQ(First("longeval", "5_topics.jsonl/0", "We spoke of Old Ships."), 1);
  EXPECT_EQ(First("longeval", "5_topics.jsonl/0", "ships, old ones"), 0);
}

TEST_F(TaskScores, EveryPartOfLongBench) {
  struct Case {
    const char* part;
    const char *reference, *perfect, *shuffled;
  };
  const char *words = "the old man saw a light", *shuffled = "light a saw man old the";
  const char *words_f1 = "The old man saw a light!", *fewer = "light fire";
  const Case cases[] = {
      {"narrativeqa", words, words_f1, fewer},
      {"qasper", words, words_f1, fewer},
      {"multifieldqa_en", words, words_f1, fewer},
      {"hotpotqa", words, words_f1, fewer},
      {"2wikimqa", words, words_f1, fewer},
      {"musique", words, words_f1, fewer},
      {"gov_report", words, words, shuffled},
      {"qmsum", words, words, shuffled},
      {"multi_news", words, words, shuffled},
      {"trec", "Food", "\nFood\nnothing else", "dooF"},
      {"triviaqa", words, "\nold man saw light\nQuestion: next?", fewer},
      {"samsum", words, "the old man saw a light\nmore", shuffled},
      {"passage_count", "12", "There are 12.", "21"},
      {"passage_retrieval_en", "Paragraph 12", "Paragraph 12", "Paragraph 21"},
      {"lcc", "  return x;", "// so\n  return x;\n}", "x return;"},
      {"repobench-p", "  return x;", "```\n  return x;", "x return;"},
  };
  std::string forms;
  for (const Case& one : cases) {
    forms += (forms.empty() ? "{\"" : ", \"") + std::string(one.part) + "\": \"{context} {input}\"";
    File(std::string(one.part) + ".jsonl",
         R"({"input": "what", "context": "c", "answers": ["zebra", ")" +
             std::string(one.reference) + R"("], "all_classes": ["Food", "Color"]})");
  }
  File("dataset2prompt.json", forms + "}");
  for (const Case& one : cases) {
    const std::string id = std::string(one.part) + "/0";
    EXPECT_DOUBLE_EQ(First("longbench", id, one.perfect), 1) << one.part;
    EXPECT_LT(First("longbench", id, one.shuffled), 0.9) << one.part;
    EXPECT_EQ(First("longbench", id, ""), 0) << one.part;
  }
}

// Chinese answers whose words need no dictionary, so that the random tables suffice.
TEST_F(TaskScores, ChineseTasksOfLongBench) {
  struct Case {
    const char *part, *reference, *perfect, *wrong;
  };
  const Case cases[] = {
      {"multifieldqa_zh", "Zq 7", "「Zq」，7。", "x 7 8"},
      {"dureader", "Zq 7 .", "Zq 7 .", "8 Zq"},
      {"vcsum", "Zq 7 .", "Zq 7 .", "8 Zq"},
      {"lsht", "文化", "\n文化\n体育", "体育"},
      {"passage_retrieval_zh", "段落12", "段落12", "段落21"},
  };
  std::string forms;
  for (const Case& one : cases) {
    forms += (forms.empty() ? "{\"" : ", \"") + std::string(one.part) + "\": \"{context} {input}\"";
    File(std::string(one.part) + ".jsonl", R"({"input": "what", "context": "c", "answers": [")" +
                                               std::string(one.reference) +
                                               R"("], "all_classes": ["文化", "体育"]})");
  }
  File("dataset2prompt.json", forms + "}");
  Set("tasks", "multifieldqa_zh,dureader,vcsum,lsht,passage_retrieval_zh");
  EXPECT_TRUE(Refusal("longbench").starts_with("tasks multifieldqa_zh: its score, Chinese F1, "));
  context_.option_word = [](std::string_view option) { return "--" + std::string(option); };
  EXPECT_NE(Refusal("longbench").find("give --jieba DIR/jieba"), std::string::npos);
  Set("jieba", "src/eval/metrics/expected/jieba");
  for (const Case& one : cases) {
    const std::string id = std::string(one.part) + "/0";
    EXPECT_DOUBLE_EQ(First("longbench", id, one.perfect), 1) << one.part;
    EXPECT_LT(First("longbench", id, one.wrong), 0.9) << one.part;
    EXPECT_EQ(First("longbench", id, ""), 0) << one.part;
  }
}

TEST_F(TaskScores, ChineseTasksWithoutJieba) {
  File("lsht.jsonl",
       R"({"input": "x", "context": "c", "answers": ["文化"], "all_classes": ["文化"]})");
  File("dataset2prompt.json", R"({"lsht": "{context} {input}"})");
  // By default, the English and code tasks run, whose files are missing here.
  EXPECT_NE(Refusal("longbench").find("narrativeqa.jsonl"), std::string::npos);
  Set("tasks", "lsht");
  EXPECT_EQ(First("longbench", "lsht/0", "文化"), 1);
}

TEST_F(TaskScores, EveryKindOfLEval) {
  struct Case {
    const char *file, *evaluation, *reference, *perfect, *wrong;
  };
  const Case cases[] = {
      {"coursera", "exam", "AC", "Answer: A and C", "Answer: C"},
      {"quality", "exam", "(B) the ship", "B", "A"},
      {"tpo", "exam", "D", "(D) because", "C"},
      {"gsm100", "exam", "so\n#### 1,250", "The answer is 1250.", "The answer is 2150."},
      {"sci_fi", "exam", "True [fact: False]", "true.", "False"},
      {"topic_retrieval_longchat", "exam", "old ships", "The topic is Old ships.", "ships old"},
      {"codeU", "exam", "['a', 3]", "Answer: ['a', 3]", "[3, 'a']"},
      {"narrative_qa", "f1", "the old man", "Old man.", "old dog"},
      {"gov_report_summ", "rouge", "the old man saw a light", "the old man saw a light",
       "light a saw man old the"},
      {"paper_assistant", "human", "the old man saw a light", "the old man saw a light",
       "light a saw man old the"},
  };
  for (const Case& one : cases) {
    std::string reference;
    for (const char c : std::string(one.reference)) {
      reference += c == '\n' ? "\\n" : std::string(1, c);
    }
    File(std::string(one.file) + ".jsonl", R"({"instructions": ["what"], "outputs": [")" +
                                               reference + R"("], "input": "x", "evaluation": ")" +
                                               one.evaluation + "\"}");
  }
  for (const Case& one : cases) {
    const std::string id = std::string(one.file) + "/0/0";
    EXPECT_DOUBLE_EQ(First("leval", id, one.perfect), 1) << one.file;
    EXPECT_LT(First("leval", id, one.wrong), 0.9) << one.file;
    EXPECT_EQ(First("leval", id, ""), 0) << one.file;
  }
}

TEST_F(TaskScores, NothingSaidIsNeverRight) {
  for (const char* file : {"tpo", "gsm100", "sci_fi", "codeU"}) {
    File(std::string(file) + ".jsonl",
         R"({"instructions": ["what"], "outputs": [""], "input": "x", "evaluation": "exam"})");
  }
  for (const char* file : {"tpo", "gsm100", "sci_fi", "codeU"}) {
    EXPECT_EQ(First("leval", std::string(file) + "/0/0", "no idea"), 0) << file;
  }
}

TEST_F(TaskScores, Gsm8k) {
  File("test.jsonl", R"({"question": "how many", "answer": "so\n#### 1,250"})");
  const Scores right = Score("gsm8k", "", "It is so.\n#### 1250");
  EXPECT_EQ(right.at("exact"), 1);
  EXPECT_EQ(right.at("last_number"), 1);
  const Scores unmarked = Score("gsm8k", "", "first 3, then 1,250.");
  EXPECT_EQ(unmarked.at("exact"), 0);
  EXPECT_EQ(unmarked.at("last_number"), 1);
  const Scores wrong = Score("gsm8k", "", "1250 - 0521\n#### 0521");
  EXPECT_EQ(wrong.at("exact"), 0);
  EXPECT_EQ(wrong.at("last_number"), 0);
  EXPECT_EQ(Score("gsm8k", "", "").at("exact"), 0);
  EXPECT_EQ(Score("gsm8k", "", "").at("last_number"), 0);
}

TEST_F(TaskScores, Coqa) {
  File("coqa-dev-v1.0.json",
       R"({"data": [{"story": "s", "questions": [{"input_text": "q", "turn_id": 1}],
           "answers": [{"input_text": "the old man", "turn_id": 1}],
           "additional_answers": {"0": [{"input_text": "an old man", "turn_id": 1}]}}]})");
  const Scores right = Score("coqa", "", " The old man.\nQ: who?");
  EXPECT_EQ(right.at("exact"), 1);
  EXPECT_EQ(right.at("f1"), 1);
  const Scores shuffled = Score("coqa", "", "man old");
  EXPECT_EQ(shuffled.at("exact"), 0);
  EXPECT_EQ(shuffled.at("f1"), 1);  // a bag of words
  EXPECT_LT(Score("coqa", "", "old dog").at("f1"), 1);
  EXPECT_EQ(Score("coqa", "", "").at("exact"), 0);
}

TEST_F(TaskScores, TruthfulQa) {
  File("TruthfulQA.csv",
       "Question,Best Answer,Correct Answers,Incorrect Answers\n"
       "who,x,the old man saw a light in the water,the young man saw no light at all\n");
  File("mc_task.json",
       R"([{"question": "who", "mc1_targets": {"the man": 1, "a dog": 0},
            "mc2_targets": {"the man": 1, "an old man": 1, "a dog": 0}}])");
  const Scores right = Score("truthfulqa", "gen/0", " The old man saw a light in the water.");
  EXPECT_GT(right.at("bleu_max"), 0.8);  // one capital letter differs
  EXPECT_EQ(right.at("bleu_acc"), 1);
  EXPECT_DOUBLE_EQ(
      Score("truthfulqa", "gen/0", "the old man saw a light in the water.").at("bleu_max"), 1);
  const Scores shuffled = Score("truthfulqa", "gen/0", "water the in light a saw man old the.");
  EXPECT_LT(shuffled.at("bleu_max"), 0.5);
  EXPECT_EQ(Score("truthfulqa", "gen/0", "the young man saw no light at all.").at("bleu_acc"), 0);
  const auto workload = FirstWorkload("truthfulqa", "mc/0");
  const Choices* choices = AsChoices(*workload);
  ASSERT_NE(choices, nullptr);
  const auto weigh = [&](double man, double dog, double old_man) {
    std::vector<double> log_probs;
    for (const std::string& text : choices->texts) {
      log_probs.push_back(std::log(text == "the man" ? man : text == "a dog" ? dog : old_man));
    }
    return ByName(choices->score(log_probs));
  };
  EXPECT_EQ(weigh(.3, .2, .1).at("mc1"), 1);
  EXPECT_NEAR(weigh(.3, .2, .1).at("mc2"), 4 / 6.0, 1e-12);
  EXPECT_EQ(weigh(.2, .3, .5).at("mc1"), 0);  // "an old man" is no choice of mc1
  EXPECT_NEAR(weigh(.2, .3, .5).at("mc2"), 0.7, 1e-12);
}

TEST_F(TaskScores, MultipleChoice) {
  File("test.jsonl",
       R"({"id": "1", "question": {"stem": "who", "choices": [{"text": "man", "label": "A"}, )"
       R"({"text": "a very old woman", "label": "B"}]}, "answerKey": "B"})");
  EXPECT_EQ(Weigh("multiple-choice", "", {-2, -1}).at("right"), 1);
  EXPECT_EQ(Weigh("multiple-choice", "", {-1, -2}).at("right"), 0);
  Set("by", "text");
  const Scores longer = Weigh("multiple-choice", "", {-3, -4});
  EXPECT_EQ(longer.at("right"), 0);
  EXPECT_EQ(longer.at("right_norm"), 1);  // 4 nats over 16 bytes
  Set("by", "generation");
  EXPECT_EQ(First("multiple-choice", "", " B."), 1);
  EXPECT_EQ(First("multiple-choice", "", "The answer is (B) a very old woman"), 1);
  EXPECT_EQ(First("multiple-choice", "", "A"), 0);
  EXPECT_EQ(First("multiple-choice", "", "A and B"), 0);
  EXPECT_EQ(First("multiple-choice", "", ""), 0);
}

TEST_F(TaskScores, TheoremQa) {
  File("theoremqa_test.json",
       R"([{"Question": "q", "Answer": 3, "Answer_type": "integer"},
           {"Question": "q", "Answer": 2.5, "Answer_type": "float"},
           {"Question": "q", "Answer": true, "Answer_type": "bool"},
           {"Question": "q", "Answer": [1, 2], "Answer_type": "list of integer"},
           {"Question": "q", "Answer": "b", "Answer_type": "option"}])");
  struct Case {
    const char *id, *perfect, *wrong;
  };
  const Case cases[] = {{"0", "1 + 2, so the answer is 3.", "3 of 4: the answer is 4"},
                        {"1", "The answer is 2.52", "The answer is 5.2"},
                        {"2", "Thus the answer is yes.", "The answer is no."},
                        {"3", "The answer is [1, 2]", "The answer is [2, 1]"},
                        {"4", "The answer is (b).", "The answer is (a)."}};
  for (const Case& one : cases) {
    EXPECT_EQ(First("theoremqa", one.id, one.perfect), 1) << one.id;
    EXPECT_EQ(First("theoremqa", one.id, one.wrong), 0) << one.id;
    EXPECT_EQ(First("theoremqa", one.id, ""), 0) << one.id;
  }
}

}  // namespace
}  // namespace winnow::eval
