// `outboard shard explain`.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "base/check.h"
#include "cli/commands.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"

namespace outboard::cli {
namespace {

// x [8192, 4096] times w [4096, 1024], and w with its gradient: so much work that it is shared.
std::string Step() {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {8192, 4096});
  const UOp* const w = Param(g, 1, DType::kF32, {4096, 1024});
  const UOp* const left = Expand(g, Reshape(g, x, {8192, 4096, 1}), {8192, 4096, 1024});
  const UOp* const right = Expand(g, Reshape(g, w, {1, 4096, 1024}), {8192, 4096, 1024});
  const UOp* const y = Reduce(g, Op::kAdd, Mul(g, left, right), {1});
  const UOp* const gradient = Reshape(
      g, Reduce(g, Op::kAdd, Mul(g, left, Expand(g, y, {8192, 4096, 1024})), {0}), {4096, 1024});
  return ValueOrDie(EncodeGraph(Sink(g, {y, Add(g, w, gradient)}))).bytes;
}

TEST(ShardExplain, ShowsEachSpreadAndTheCollectivesOfOne) {
  const auto text = ShardExplanation(Step(), {.devices = 4, .spread = "data"});
  ASSERT_TRUE(text.ok()) << text.status();
  for (const char* part :
       {"auto", "data", "fsdp", "tensor", "ALLREDUCE", "8192 long", "later steps"})
    EXPECT_TRUE(absl::StrContains(*text, part)) << part << "\n" << *text;
  EXPECT_FALSE(absl::StrContains(*text, "* UNSHARD")) << *text;
}

TEST(ShardExplain, SaysByWhatItPredicts) {
  const auto assumed = ShardExplanation(Step(), {.devices = 2});
  ASSERT_TRUE(assumed.ok());
  EXPECT_TRUE(absl::StrContains(*assumed, "links of 1.00 GB/s and 100 us")) << *assumed;
  const auto measured = ShardExplanation(Step(), {.devices = 2, .measures = true});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_TRUE(absl::StrContains(*measured, "measured here")) << *measured;
}

TEST(ShardExplain, KnowsWhatADeviceHas) {
  // w is 16 MiB; x, which is held whole, 128 MiB.
  const ShardFlags tight{.devices = 4, .memory_bytes = 145 << 20};
  const auto text = ShardExplanation(Step(), tight);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(absl::StrContains(*text, "state in parts")) << *text;
  ShardFlags none = tight;
  none.memory_bytes = 1 << 20;
  EXPECT_EQ(ShardExplanation(Step(), none).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ShardExplain, NamesWhatIsWrong) {
  const auto code = [](const std::string& bytes, ShardFlags flags) {
    return ShardExplanation(bytes, flags).status().code();
  };
  EXPECT_EQ(code("no graph", {.devices = 2}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Step(), {.devices = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Step(), {.devices = 4, .mesh = "2x3"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Step(), {.devices = 4, .mesh = "2,2"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Step(), {.devices = 4, .mesh = "2x2"}), absl::StatusCode::kOk);
  EXPECT_EQ(code(Step(), {.devices = 2, .spread = "stages"}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(Step(), {.devices = 2, .spread = "wide"}), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::cli
