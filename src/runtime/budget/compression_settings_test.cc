#include "runtime/budget/compression_settings.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace winnow::runtime {
namespace {

constexpr CompressionFieldNames kWords = {.method = "--kv-method",
                                          .decode = "--kv-decode",
                                          .size = "--kv-size",
                                          .ratio = "--kv-ratio",
                                          .memory = "--kv-memory",
                                          .quality = "--kv-quality",
                                          .prefill_chunk = "--prefill-chunk"};

TEST(CompressionSettings, MakesWhatIsWanted) {
  const auto made = MakeCompression(
      {.method = "snapkv:window=16", .decode = "h2o", .ratio = 0.25, .prefill_chunk = 512}, kWords);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->method->traits().spec, "snapkv:window=16, then h2o");
  EXPECT_EQ(made->ratio, 0.25);
  EXPECT_EQ(made->prefill_chunk, 512);
  EXPECT_EQ(MakeCompression({.method = "refreekv"}, kWords)->size, 0);
}

// The full cache has no method at all, so `method == nullptr` everywhere means that nothing is
// evicted.
TEST(CompressionSettings, TheFullCacheHasNoMethod) {
  for (const char* name : {"", "full"}) {
    const auto made = MakeCompression({.method = name, .memory_bytes = 1000}, kWords);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->method, nullptr);
    EXPECT_EQ(made->memory_bytes, 1000);
  }
}

TEST(CompressionSettings, ErrorsNameTheFieldInTheCallersWords) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  struct Case {
    Compression wanted;
    std::string field, message;
  };
  const Case cases[] = {
      {{.method = "h20", .size = 64}, "--kv-method", "--kv-method: "},
      {{.method = "h2o:x=1", .size = 64}, "--kv-method", "--kv-method: "},
      {{.method = "snapkv", .decode = "h20", .size = 64}, "--kv-decode", "--kv-decode: "},
      {{.method = "h2o", .decode = "snapkv", .size = 64}, "--kv-decode", "--kv-decode: "},
      {{.decode = "h2o", .size = 64}, "--kv-decode", "--kv-decode: a method for generated tokens"},
      {{.method = "ems", .size = 1}, "--kv-size", "--kv-size: found 1, ems needs 2 or more"},
      {{.method = "h2o"}, "", "h2o needs a budget: --kv-size (entries per KV head, "},
      {{.method = "h2o", .size = 64, .ratio = 0.5},
       "",
       "give only one of --kv-size, --kv-ratio, --kv-memory and --kv-quality"},
      {{.method = "h2o", .ratio = 0.5, .quality = 0.1}, "", "give only one of --kv-size"},
      {{.method = "full", .quality = 0.1}, "", "the full cache has no size to choose"},
      {{.method = "pyramidinfer", .quality = 0.1},
       "--kv-quality",
       "--kv-quality: pyramidinfer chooses its own size"},
      {{.method = "refreekv", .quality = 0.1},
       "--kv-quality",
       "--kv-quality: refreekv chooses its own size"},
      {{.method = "h2o", .quality = -1},
       "--kv-quality",
       "--kv-quality: found -1, expected more than 0 nats"},
      {{.method = "full", .size = 64}, "", "the full cache has no size to choose: name a method"},
      {{.method = "pyramidinfer", .size = 64},
       "--kv-size",
       "--kv-size: pyramidinfer chooses its own size"},
      {{.method = "pyramidinfer", .ratio = 0.5},
       "--kv-ratio",
       "--kv-ratio: pyramidinfer chooses its own size"},
      {{.method = "h2o", .ratio = 1.5},
       "--kv-ratio",
       "--kv-ratio: found 1.5, expected more than 0"},
      {{.method = "h2o", .size = -1}, "--kv-size", "--kv-size: found -1, expected 1 to 2147483647"},
      {{.method = "h2o", .size = kHuge}, "--kv-size", "--kv-size: found 9223372036854775807"},
      {{.method = "h2o", .size = 64, .prefill_chunk = -1},
       "--prefill-chunk",
       "--prefill-chunk: found -1, expected 1 or more tokens"},
      {{.memory_bytes = -1}, "--kv-memory", "--kv-memory: found -1, expected 1 or more bytes"},
  };
  for (const Case& one : cases) {
    CompressionProblem problem;
    const auto made = MakeCompression(one.wanted, kWords, &problem);
    ASSERT_FALSE(made) << one.message;
    EXPECT_EQ(problem.field, one.field) << made.error().message;
    EXPECT_TRUE(made.error().message.starts_with(one.message)) << made.error().message;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
  }
}

// Errors of the library name the field in backquotes; a program may use its own words.
TEST(CompressionSettings, TheLibrarysOwnWordsStandInBackquotes) {
  EXPECT_EQ(MakeCompression({.method = "full", .size = 64}, {}).error().message,
            "the full cache has no size to choose: name a method with `method`");
  EXPECT_EQ(MakeCompression({.method = "ems", .size = 1}, {}).error().message,
            "`size`: found 1, ems needs 2 or more");
}

}  // namespace
}  // namespace winnow::runtime
