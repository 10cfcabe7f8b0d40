// Gradients without declaring anything: which tensors get one, how they add up, and what a step
// leaves of them.
#include "client/autograd/backward.h"

#include "client/nn/optim.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using BackwardTest = ClientTest;

TEST_F(BackwardTest, EveryFloatTensorThatIsAlive) {
  const Tensor w = Tensor::from<float>({1, 2, 3}), unused = Tensor::from<float>({1, 2, 3});
  const Tensor places = Tensor::from<int>({1, 0, 1});
  const Tensor square = w * w, y = (square * places).sum();
  backward(y);
  ExpectNear(w.grad(), {2, 0, 6});
  ExpectNear(square.grad(), {1, 0, 1});
  ExpectNear(y.grad(), {1});
  EXPECT_TRUE(unused.grad().empty());
  EXPECT_TRUE(places.grad().empty());
}

TEST_F(BackwardTest, AddsUpAndIsWeighed) {
  Tensor w = Tensor::from<float>({1, 2});
  backward((w * 3).sum());
  const Tensor first = w.grad();
  backward(w * 2, Tensor::from<float>({1, 10}));
  ExpectNear(w.grad(), {5, 23});
  ExpectNear(first, {5, 23});  // the same tensor, as any that is assigned
  w.grad().realize();
  backward(w.sum());
  ExpectNear(w.grad(), {6, 24});
  w.set_grad({});
  backward(w.sum());
  ExpectNear(w.grad(), {1, 1});
}

TEST_F(BackwardTest, OfTensorsThatShareABuffer) {
  const Tensor a = Tensor::from<float>({1, 2});
  Tensor b = a.reshape({1, 2}).reshape({2});
  b.realize();
  backward((a * 5).sum());
  ExpectNear(a.grad(), {5, 5});
}

TEST_F(BackwardTest, ANumberIsNoVariable) {
  const Tensor ones = Tensor::ones({3}), w = Tensor::from<float>({1, 2, 3});
  backward((w * ones + 1).sum());
  EXPECT_TRUE(ones.grad().empty()) << "it is the same node as any other 1";
  Tensor realised = Tensor::ones({3}).contiguous();
  realised.realize();
  backward((w * realised + 1).sum());
  ExpectNear(realised.grad(), {1, 2, 3});
}

TEST_F(BackwardTest, OfAGradient) {
  const Tensor x = Tensor::from<float>({2, 3});
  const Tensor first = (x * x * x).sum().gradient({x})[0];
  const Tensor second = first.sum().gradient({x})[0];
  backward(first.sum());
  ExpectNear(second, {12, 18});
  ExpectNear(x.grad(), {12, 18});
  ExpectNear(first, {12, 27});
}

TEST_F(BackwardTest, DetachedTensorsGetZeros) {
  const Tensor w = Tensor::from<float>({1, 2});
  backward((w.detach() * 2).sum());
  ExpectNear(w.grad(), {0, 0});
}

TEST_F(BackwardTest, AStepUsesThemUp) {
  Tensor w = Tensor::from<float>({1, 2}), other = Tensor::from<float>({1, 2});
  const Tensor data = Tensor::from<float>({3, 4});
  optim::SGD sgd({w}, 0.5), second({other}, 0.5);
  const auto step = [&] {
    backward((w * data * other).sum());
    realize(sgd.schedule_step(), {});
  };
  step();
  EXPECT_TRUE(IsGradientUsedUp(w));
  EXPECT_TRUE(IsGradientUsedUp(data));
  EXPECT_TRUE(w.grad().empty());
  EXPECT_FALSE(other.grad().empty()) << "another optimiser's";
  realize(second.schedule_step(), {});
  ExpectNear(w, {-0.5, -2});
  ExpectNear(other, {-0.5, -2});
  EXPECT_EQ(StatusOf(step).code(), absl::StatusCode::kFailedPrecondition)
      << "zero_grad() is missing";
  sgd.zero_grad();
  second.zero_grad();
  EXPECT_TRUE(StatusOf(step).ok());
  EXPECT_TRUE(IsGradientUsedUp(data));
}

TEST_F(BackwardTest, AStepIsOneGraphAndGivesUpTheOldParameters) {
  Tensor w = Tensor::rand({4, 4}).realize();
  const Tensor data = Tensor::rand({4, 4}).realize();
  optim::Adam adam({w});
  const auto step = [&] {
    adam.zero_grad();
    const Tensor loss = (data.matmul(w)).square().mean();
    backward(loss);
    std::vector<Tensor> changed = adam.schedule_step();
    changed.push_back(loss);
    realize(changed, {});
  };
  for (int i = 0; i < 2; ++i) step();
  const size_t graphs = session->graph_count();
  const int64_t live = session->live_buffers(), donated = session->donated;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(session->graph_count(), graphs);
  EXPECT_EQ(session->live_buffers(), live);
  EXPECT_EQ(session->donated, donated + 5 * 5) << "w, two moments, two powers";
}

TEST_F(BackwardTest, WhatHasNoGradient) {
  const Tensor w = Tensor::from<float>({1, 2});
  EXPECT_EQ(StatusOf([&] { backward(w * 2); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { backward(Tensor::from<int>({1}).sum()); }).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard
