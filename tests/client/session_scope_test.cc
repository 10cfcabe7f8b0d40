// Two engines in one program: what a scope keeps apart, and what an interruption leaves behind.
#include "client/tensor/session_scope.h"

#include <thread>

#include "client/nn/optim.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

class SessionScopeTest : public ClientTest {
 protected:
  std::shared_ptr<FakeSession> other = std::make_shared<FakeSession>();

  static absl::StatusCode CodeOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.status().code();
    }
    return absl::StatusCode::kOk;
  }
};

TEST_F(SessionScopeTest, WhatIsMadeInsideIsComputedThere) {
  Tensor inside;
  {
    const SessionScope scope(other);
    inside = Tensor::ones({2}) + 1;
    EXPECT_EQ((inside * 2).sum().item(), 8);
  }
  EXPECT_EQ(other->runs, 1);
  EXPECT_EQ(session->runs, 0);
  EXPECT_EQ(inside.sum().item(), 4) << "made of it outside: from constants it goes anywhere";
  EXPECT_EQ(session->runs, 1);
}

TEST_F(SessionScopeTest, WhatIsReadOutsideIsComputedWhereItWasMade) {
  Tensor inside;
  {
    const SessionScope scope(other);
    inside = Tensor::from<float>({1, 2}) + 1;
  }
  const Tensor outside = Tensor::from<float>({3}) + 1;
  ExpectNear(inside, {2, 3});
  EXPECT_EQ(other->runs, 1);
  EXPECT_EQ(session->runs, 0);
  const SessionScope scope(other);
  ExpectNear(outside, {4});
  EXPECT_EQ(session->runs, 1);
}

TEST_F(SessionScopeTest, ParametersAndRandomNumbersAreApart) {
  Tensor::manual_seed(7);
  Tensor w = Tensor::from<float>({1}).state_(), v;
  const double first = Tensor::rand({1}).item();
  w.assign(w + 1);  // pending
  {
    const SessionScope scope(other);
    v = Tensor::from<float>({1}).state_();
    v.assign(v + 10);
    EXPECT_EQ(Tensor::rand({1}).item(), first) << "the same seed";
    EXPECT_EQ(v.item(), 11);
  }
  const double second = Tensor::rand({1}).item();
  EXPECT_NE(second, first);
  {
    const SessionScope scope(other);
    EXPECT_EQ(Tensor::rand({1}).item(), second) << "goes on where it was";
  }
  EXPECT_EQ(w.item(), 2);
}

TEST_F(SessionScopeTest, MixingIsAnError) {
  const Tensor outside = Tensor::from<float>({1});
  const SessionScope scope(other);
  const Tensor inside = Tensor::from<float>({1});
  EXPECT_EQ(CodeOf([&] { (inside + outside).item(); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(inside.item(), 1);
}

TEST_F(SessionScopeTest, OfAnEngineThatIsGoneNothingIsComputedElsewhere) {
  Tensor lost;
  {
    const SessionScope scope(other);
    lost = Tensor::ones({2}) + 1;
  }
  ForgetSession(*other);
  other = nullptr;
  EXPECT_EQ(CodeOf([&] { lost.to_host(); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->runs, 0);
}

TEST_F(SessionScopeTest, ThreadsHaveScopesOfTheirOwn) {
  const auto work = [](const std::shared_ptr<FakeSession>& session) {
    const SessionScope scope(session);
    for (int i = 0; i < 100; ++i) EXPECT_EQ((Tensor::full({3}, i) * 2).sum().item(), 6 * i);
  };
  const auto third = std::make_shared<FakeSession>();
  std::thread one([&] { work(other); }), two([&] { work(third); });
  one.join();
  two.join();
  EXPECT_EQ(other->runs, 100);
  EXPECT_EQ(third->runs, 100);
  EXPECT_EQ(session->runs, 0);
}

TEST_F(SessionScopeTest, AStepThatWaitsForRoomAndIsStoppedHasNotHappened) {
  Tensor w = Tensor::from<float>({1}).state_();
  w.assign(w + 1);
  session->window = absl::CancelledError("stopped");
  EXPECT_EQ(CodeOf([&] { w.realize(); }), absl::StatusCode::kCancelled);
  EXPECT_EQ(session->runs, 0);
  session->window = absl::OkStatus();
  EXPECT_EQ(w.item(), 2) << "once, not twice";
}

}  // namespace
}  // namespace outboard
