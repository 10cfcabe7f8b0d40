// Two engines in one program: what a scope keeps apart, and what an interruption leaves behind.
#include "client/tensor/engine_scope.h"

#include <thread>

#include "client/nn/optim.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

class EngineScopeTest : public ClientTest {
 protected:
  std::shared_ptr<FakeEngine> other = std::make_shared<FakeEngine>();

  static absl::StatusCode CodeOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.status().code();
    }
    return absl::StatusCode::kOk;
  }
};

TEST_F(EngineScopeTest, WhatIsMadeInsideIsComputedThere) {
  Tensor inside;
  {
    const EngineScope scope(other);
    inside = Tensor::ones({2}) + 1;
    EXPECT_EQ((inside * 2).sum().item(), 8);
  }
  EXPECT_EQ(other->runs, 1);
  EXPECT_EQ(engine->runs, 0);
  EXPECT_EQ(inside.sum().item(), 4) << "made of it outside: from constants it goes anywhere";
  EXPECT_EQ(engine->runs, 1);
}

TEST_F(EngineScopeTest, WhatIsReadOutsideIsComputedWhereItWasMade) {
  Tensor inside;
  {
    const EngineScope scope(other);
    inside = Tensor::from<float>({1, 2}) + 1;
  }
  const Tensor outside = Tensor::from<float>({3}) + 1;
  ExpectNear(inside, {2, 3});
  EXPECT_EQ(other->runs, 1);
  EXPECT_EQ(engine->runs, 0);
  const EngineScope scope(other);
  ExpectNear(outside, {4});
  EXPECT_EQ(engine->runs, 1);
}

TEST_F(EngineScopeTest, ParametersAndRandomNumbersAreApart) {
  Tensor::manual_seed(7);
  Tensor w = Tensor::from<float>({1}).state_(), v;
  const double first = Tensor::rand({1}).item();
  w.assign(w + 1);  // pending
  {
    const EngineScope scope(other);
    v = Tensor::from<float>({1}).state_();
    v.assign(v + 10);
    EXPECT_EQ(Tensor::rand({1}).item(), first) << "the same seed";
    EXPECT_EQ(v.item(), 11);
  }
  const double second = Tensor::rand({1}).item();
  EXPECT_NE(second, first);
  {
    const EngineScope scope(other);
    EXPECT_EQ(Tensor::rand({1}).item(), second) << "goes on where it was";
  }
  EXPECT_EQ(w.item(), 2);
}

TEST_F(EngineScopeTest, MixingIsAnError) {
  const Tensor outside = Tensor::from<float>({1});
  const EngineScope scope(other);
  const Tensor inside = Tensor::from<float>({1});
  EXPECT_EQ(CodeOf([&] { (inside + outside).item(); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(inside.item(), 1);
}

TEST_F(EngineScopeTest, OfAnEngineThatIsGoneNothingIsComputedElsewhere) {
  Tensor lost;
  {
    const EngineScope scope(other);
    lost = Tensor::ones({2}) + 1;
  }
  ForgetEngine(*other);
  other = nullptr;
  EXPECT_EQ(CodeOf([&] { lost.to_host(); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine->runs, 0);
}

TEST_F(EngineScopeTest, ThreadsHaveScopesOfTheirOwn) {
  const auto work = [](const std::shared_ptr<FakeEngine>& engine) {
    const EngineScope scope(engine);
    for (int i = 0; i < 100; ++i) EXPECT_EQ((Tensor::full({3}, i) * 2).sum().item(), 6 * i);
  };
  const auto third = std::make_shared<FakeEngine>();
  std::thread one([&] { work(other); }), two([&] { work(third); });
  one.join();
  two.join();
  EXPECT_EQ(other->runs, 100);
  EXPECT_EQ(third->runs, 100);
  EXPECT_EQ(engine->runs, 0);
}

TEST_F(EngineScopeTest, AStepThatWaitsForRoomAndIsStoppedHasNotHappened) {
  Tensor w = Tensor::from<float>({1}).state_();
  w.assign(w + 1);
  engine->room = absl::CancelledError("stopped");
  EXPECT_EQ(CodeOf([&] { w.realize(); }), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine->runs, 0);
  engine->room = absl::OkStatus();
  EXPECT_EQ(w.item(), 2) << "once, not twice";
}

}  // namespace
}  // namespace outboard
