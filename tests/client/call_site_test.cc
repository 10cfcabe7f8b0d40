// The user's line: that of the outermost call, of each call of a chain, and of the user's own
// function within a step that is recorded.
#include "client/lazy/call_site.h"

#include <set>
#include <thread>

#include "client/capture/jit.h"
#include "client/capture/repeat.h"
#include "client/lazy/lazy_graph.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/ops/index/index.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using CallSiteTest = ClientTest;

uint32_t LineOf(const Tensor& tensor) {
  const internal::TensorState& value = *tensor.value();
  return value.lazy_graph->LineOf(value.node).line();
}

// The line of the error that a statement throws; 0 for none.
template <typename F>
uint32_t ErrorLineOf(const F& statement) {
  try {
    statement();
  } catch (const Error& error) {
    return error.location().line();
  }
  return 0;
}

bool IsOpen() { return CallSite::Line().line() != 0; }

TEST_F(CallSiteTest, TheOutermostLineIsOpen) {
  const At here("here.cc", "", 7), inner("inner.cc", "", 8);
  EXPECT_FALSE(IsOpen());
  {
    const CallSite site(here);
    const CallSite nested(inner);
    EXPECT_EQ(CallSite::Line().line(), 7u);
    EXPECT_EQ(CallSite::Or(inner).line(), 7u);
    EXPECT_EQ(ErrorLineOf([&] { ThrowInvalid(inner, "wrong"); }), 7u);
    EXPECT_EQ(ErrorLineOf([] { ThrowInvalid("wrong"); }), 7u);
    EXPECT_EQ(ErrorLineOf([] { (void)Tensor::ones({2}).reshape({3}); }), 7u);
  }
  EXPECT_FALSE(IsOpen());
  EXPECT_EQ(CallSite::Or(inner).line(), 8u);
  EXPECT_EQ(ErrorLineOf([&] { ThrowInvalid(inner, "wrong"); }), 8u);
}

TEST_F(CallSiteTest, AnErrorClosesIt) {
  const Tensor x = Tensor::ones({2, 3});
  EXPECT_EQ(ErrorLineOf([&] { (void)x.roll({1, 2}, {0}); }), __LINE__ + 0u);
  EXPECT_FALSE(IsOpen());
  EXPECT_EQ(ErrorLineOf([&] { nn::LayerNorm(2)(x); }), __LINE__ + 0u);
  EXPECT_FALSE(IsOpen());
  EXPECT_EQ(ErrorLineOf([] { optim::Adam({}); }), __LINE__ + 0u);
  EXPECT_FALSE(IsOpen());
}

TEST_F(CallSiteTest, EachCallOfAChainHasItsOwnLine) {
  const Tensor x = Tensor::from<float>({1, 2});
  const uint32_t before = __LINE__;
  const Tensor y = x.exp2();
  // clang-format off
  const Tensor z = y.square()
                       .softplus()
                       .mean();
  // clang-format on
  EXPECT_EQ(LineOf(y), before + 1);
  EXPECT_GE(LineOf(z), before + 2);
  std::set<uint32_t> lines;
  const internal::TensorState& value = *z.value();
  for (const UOp* node : PostOrder(value.node)) lines.insert(value.lazy_graph->LineOf(node).line());
  EXPECT_TRUE(lines.contains(before + 1));
  EXPECT_TRUE(lines.contains(before + 4));
  EXPECT_TRUE(lines.contains(before + 5));
  EXPECT_EQ(*lines.rbegin(), before + 5);
}

TEST_F(CallSiteTest, WaitingWithinAnOperatorIsOfItsLine) {
  session->fail_next_run = absl::ResourceExhaustedError("no memory");
  const Tensor x = Tensor::from<float>({0, 1});
  EXPECT_EQ(ErrorLineOf([&] { (void)masked_select(x, x > 0); }), __LINE__ + 0u);
}

TEST_F(CallSiteTest, AStepHasItsOwnLines) {
  const Tensor x = Tensor::from<float>({1, 2});
  std::vector<uint32_t> lines;
  uint32_t step_line = 0;
  const auto step = [&](const Tensor& x) {
    EXPECT_FALSE(IsOpen());
    step_line = __LINE__ + 1;
    const Tensor y = x.tanh();
    lines.push_back(LineOf(y));
    return y;
  };
  Jit jit([&](const std::vector<Tensor>& x, const std::vector<SymInt>&) -> std::vector<Tensor> {
    return {step(x[0])};
  });
  for (int i = 0; i < 3; ++i) jit({x});
  (void)repeat(2, [&] { return step(x); });
  ASSERT_EQ(lines.size(), 3u) << "twice of the Jit, once of repeat";
  for (const uint32_t line : lines) EXPECT_EQ(line, step_line);
}

TEST_F(CallSiteTest, IsOfItsThread) {
  const CallSite site(At("here.cc", "", 7));
  bool is_open_there = true;
  std::thread([&] { is_open_there = IsOpen(); }).join();
  EXPECT_FALSE(is_open_there);
  EXPECT_TRUE(IsOpen());
}

}  // namespace
}  // namespace outboard
