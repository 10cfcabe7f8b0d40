// Captured steps: the bits of the function called each time, from messages alone; and what is
// refused, with the reason.
#include "client/capture/jit.h"

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "client/capture/repeat.h"
#include "client/lazy/items.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using JitTest = ClientTest;
using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;
using Sized = std::vector<SymInt>;

std::string MessageOf(const std::function<void()>& function) {
  return std::string(StatusOf(function).message());
}

TEST_F(JitTest, RunsTwiceThenOnlySends) {
  int calls = 0;
  Jit twice([&](const Tensors& x, const Sized&) -> Tensors {
    ++calls;
    return {x[0] * 2 + 1};
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = Tensor::from<float>({float(i), 10});
    const int64_t runs = session->runs;
    const Tensor y = twice({x})[0];
    EXPECT_EQ(session->runs, runs + 1);
    EXPECT_TRUE(y.realized());
    ExpectNear(y, {2.0 * i + 1, 21});
    EXPECT_EQ(twice.captured(), i >= 1);
  }
  EXPECT_EQ(calls, 2);
  twice.reset();
  EXPECT_FALSE(twice.captured());
  (void)twice({Tensor::from<float>({1, 2})});
  EXPECT_EQ(calls, 3);
}

TEST_F(JitTest, ResultsKeepTheirValues) {
  Jit twice([](const Tensors& x, const Sized&) -> Tensors { return {x[0] * 2, x[0]}; });
  std::vector<Tensors> results;
  for (int i = 0; i < 4; ++i) results.push_back(twice({Tensor::from<float>({float(i)})}));
  for (int i = 0; i < 4; ++i) {
    ExpectNear(results[i][0], {2.0 * i});
    ExpectNear(results[i][1], {1.0 * i});
  }
}

TEST_F(JitTest, StateIsReadAsItIsAndAssigned) {
  Tensor n = Tensor::from<float>({0}).state_(), by = Tensor::from<float>({1}).state_();
  Jit count([&](const Tensors&, const Sized&) -> Tensors {
    n.assign(n + by);
    return {n * 10};
  });
  for (int i = 1; i <= 4; ++i) ExpectNear(count()[0], {10.0 * i});
  ExpectNear(n, {4});
  by.assign(Tensor::from<float>({5}));  // and not realised
  ExpectNear(count()[0], {90});
  n.assign(0).realize();
  const Tensor before = n + 0;  // keeps the value of now
  ExpectNear(count()[0], {50});
  ExpectNear(before, {0});
  const int64_t live = session->live_buffers(), donated = session->donated;
  for (int i = 0; i < 10; ++i) (void)count();
  EXPECT_EQ(session->live_buffers(), live);
  EXPECT_EQ(session->donated, donated + 10);
  ExpectNear(n, {55});
}

TEST_F(JitTest, SeveralRunsHandResultsOn) {
  Tensor total = Tensor::from<float>({0}).state_();
  Jit step([&](const Tensors& x, const Sized&) -> Tensors {
    Tensor a = x[0] + 1;
    a.realize();
    total.assign(total + a);
    total.realize();
    Tensor b = a * total;
    b.realize();
    total.assign(total + b);
    return {a + b};
  });
  double sum = 0;
  for (int i = 0; i < 5; ++i) {
    const double a = i + 1, b = a * (sum + a);
    sum += a + b;
    ExpectNear(step({Tensor::from<float>({float(i)})})[0], {a + b});
    ExpectNear(total, {sum});
  }
}

TEST_F(JitTest, ArgumentsAreAssigned) {
  Jit step([](const Tensors& x, const Sized&) -> Tensors {
    Tensor cache = x[0];
    cache.assign(cache * 2);
    return {cache.sum()};
  });
  Tensor a = Tensor::from<float>({1, 2}), b = Tensor::from<float>({5, 6});
  for (int i = 0; i < 3; ++i) (void)step({a});
  ExpectNear(a, {8, 16});
  ExpectNear(step({b})[0], {22});
  ExpectNear(b, {10, 12});
  ExpectNear(a, {8, 16});
}

TEST_F(JitTest, WhatIsKeptElsewhereGetsEachValue) {
  Tensor kept;
  Jit step([&](const Tensors& x, const Sized&) -> Tensors {
    if (kept.empty()) kept = Tensor::zeros({1});
    kept = x[0] * 3;
    kept.realize();
    return {x[0] + 1};
  });
  for (int i = 0; i < 4; ++i) {
    (void)step({Tensor::from<float>({float(i)})});
    ExpectNear(kept, {3.0 * i});
  }
}

// Of an argument's shape, whether it is lazy, realised, or the result of another step.
TEST_F(JitTest, VariablesOfAnArgumentsShape) {
  const Variable n("n", 1, 4);
  Jit rows([](const Tensors& x, const Sized&) -> Tensors { return {(x[0] * 2).sum(0), x[0] + 1}; });
  Jit mean([](const Tensors& x, const Sized&) -> Tensors { return {x[0].mean(0)}; });
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  for (const int64_t k : {3, 2, 4, 1, 4}) {
    Tensor part = x.slice(0, 0, n.bind(k));
    if (k % 2 == 0) part.realize();
    const Tensors results = rows({part});
    const auto d = static_cast<double>(k);
    ExpectNear(results[0], {2 * d * d, 2 * d * (d + 1)});
    EXPECT_EQ(results[1].shape(), (Dims{k, 2}));
    ExpectNear(mean({results[1]})[0], {d + 1, d + 2});
    if (part.realized()) EXPECT_EQ(part.shape(), (Dims{k, 2}));
  }
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { (void)rows({x.slice(0, 0, 3)}); }),
                                "argument 0 is f32[3, 2], recorded with f32[n = 2, 2]"));
  const Variable m("m", 1, 4);
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { (void)rows({x.slice(0, 0, m.bind(2))}); }),
                                "argument 0 is f32[m = 2, 2]"));
}

TEST_F(JitTest, NumbersOfAnArgumentsShapeAreRefused) {
  const Variable n("n", 1, 4);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {4});
  Jit numbers([](const Tensors& x, const Sized&) -> Tensors {
    return {x[0] * static_cast<double>(x[0].shape(0))};
  });
  for (int i = 0; i < 2; ++i) {
    Tensor part = x.slice(0, 0, n.bind(2)).realize();
    const std::string message = MessageOf([&] { (void)numbers({part}); });
    EXPECT_EQ(absl::StrContains(message, "is of a variable"), i == 1) << message;
    EXPECT_EQ(part.shape(), Dims{2});
  }
}

// A part of a tensor in the step fits for some values of the variable: no other is sent.
TEST_F(JitTest, ValuesForWhichTheStepDoesNotFit) {
  const Variable start("start", 0, 4);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {4}).realize();
  Tensor cache = Tensor::zeros({4}).contiguous().realize();
  Jit step([&](const Tensors&, const Sized& at) -> Tensors {
    part(cache, {Slice{at[0], at[0] + 1}}).assign(x.slice(0, at[0], at[0] + 1) * 2);
    return {cache.sum()};
  });
  for (int64_t i = 0; i < 4; ++i)
    ExpectNear(step({}, {start.bind(i)})[0], {static_cast<double>((i + 1) * (i + 2))});
  const int64_t runs = session->runs;
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { (void)step({}, {start.bind(4)}); }),
                                "variable start is bound to 4, and the parts of tensors in the "
                                "step fit for 0..3"));
  EXPECT_EQ(session->runs, runs);
  ExpectNear(cache, {2, 4, 6, 8});
}

TEST_F(JitTest, RepetitionsForWhichTheStepDoesNotFit) {
  const Variable i("i", 0, 9);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {4}).realize();
  const auto sums = [&](int64_t count) {
    const SymInt index = i.bind(0);
    return repeat(count, index,
                  [&](const SymInt& at) -> Tensors { return {x.slice(0, at, at + 1).sum()}; });
  };
  ExpectNear(sums(4)[0], {1, 2, 3, 4});
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { (void)sums(5); }), "variable i goes to 4"));
}

TEST_F(JitTest, VariablesAreThoseOfTheCall) {
  const Variable n("n", 1, 8);
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8});
  Jit sum([&](const Tensors&, const Sized& sizes) -> Tensors {
    const Tensor part = x.slice(0, 0, sizes[0]);
    return {part.sum(), part * 1};
  });
  for (const int64_t k : {3, 5, 1, 8}) {
    const Tensors results = sum({}, {n.bind(k)});
    ExpectNear(results[0], {k * (k + 1) / 2.0});
    EXPECT_EQ(results[1].shape(), (Dims{k}));
  }
  EXPECT_EQ(StatusOf([&] { (void)sum(); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { (void)sum({}, {Variable("m", 1, 8).bind(1)}); }).code(),
            absl::StatusCode::kInvalidArgument);
}

// Everything that a training has: running means, weights, moments, dropout.
struct Training {
  nn::Linear hidden{6, 8}, out{8, 3};
  nn::BatchNorm2d norm{8};
  std::unique_ptr<optim::Optimizer> optimiser;
  nn::StateDict state;

  Training() {
    hidden.Collect(state, "hidden.");
    norm.Collect(state, "norm.");
    out.Collect(state, "out.");
    optimiser = std::make_unique<optim::AdamW>(nn::parameters(state), 0.01);
  }
  Tensor Step(const Tensor& images, const Tensor& labels) {
    const TrainingMode training(true);
    Tensor loss;
    {
      const Tensor x = hidden(images).reshape({4, 8, 1, 1});
      const Tensor y = out(norm(x).relu().reshape({4, 8}).dropout(0.25));
      loss = y.sparse_categorical_crossentropy(labels);
      loss.backward();
    }
    optimiser->step({loss});
    return loss;
  }
};

std::vector<HostTensor> Train(FakeSession& session, bool captured) {
  Tensor::manual_seed(5);
  Training training;
  Jit step([&](const Tensors& x, const Sized&) -> Tensors { return {training.Step(x[0], x[1])}; });
  std::vector<HostTensor> outcome;
  for (int i = 0; i < 6; ++i) {
    if (i == 4) training.optimiser->set_lr(0.1);
    if (i == 5) Tensor::manual_seed(9);
    const Tensor images = Tensor::rand({4, 6}).realize();
    const Tensor labels = Tensor::randint({4}, 0, 3).realize();
    const int64_t runs = session.runs;
    const Tensor loss = captured ? step({images, labels})[0] : training.Step(images, labels);
    EXPECT_LE(session.runs, runs + 1);
    outcome.push_back(loss.to_host());
  }
  for (const auto& [name, tensor] : training.state) outcome.push_back(tensor.to_host());
  return outcome;
}

TEST_F(JitTest, ATrainingHasTheBitsOfTheFunction) {
  EXPECT_EQ(Train(*session, true), Train(*session, false));
}

TEST_F(JitTest, ASentStepGivesUpWhatItReplaces) {
  Training training;
  Jit step([&](const Tensors& x, const Sized&) -> Tensors { return {training.Step(x[0], x[1])}; });
  const Tensor images = Tensor::rand({4, 6}).realize();
  const Tensor labels = Tensor::randint({4}, 0, 3).realize();
  for (int i = 0; i < 3; ++i) (void)step({images, labels});
  const int64_t live = session->live_buffers(), donated = session->donated;
  const size_t graphs = session->graph_count();
  for (int i = 0; i < 3; ++i) (void)step({images, labels});
  EXPECT_EQ(session->live_buffers(), live);
  // 6 parameters, their moments, two powers, two running means, the counter of random numbers.
  EXPECT_EQ(session->donated, donated + 3 * (6 * 3 + 2 + 2 + 1));
  // The function itself is the same graph still: its buffers have their places.
  (void)training.Step(images, labels);
  EXPECT_EQ(session->graph_count(), graphs);
}

TEST_F(JitTest, RefusesWhatItCannotSendAgain) {
  const auto code = [&](const Jit::Step& body) {
    Jit step(body);
    const Tensor x = Tensor::from<float>({1, 2});
    return StatusOf([&] {
             for (int i = 0; i < 4; ++i) (void)step({x + i});
           })
        .code();
  };
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(code([](const Tensors& x, const Sized&) -> Tensors {
              (void)x[0].sum().item();
              return {x[0] + 1};
            }),
            kRefused);
  EXPECT_EQ(code([](const Tensors& x, const Sized&) -> Tensors {
              (void)x[0].fetch();
              return {x[0] + 1};
            }),
            kRefused);
  EXPECT_EQ(code([](const Tensors& x, const Sized&) -> Tensors {
              Tensor::manual_seed(3);
              return {x[0] + 1};
            }),
            kRefused);
  EXPECT_EQ(code([](const Tensors&, const Sized&) -> Tensors { return {}; }), kRefused);
  Tensor last = Tensor::from<float>({1, 2});  // replaced, not assigned
  EXPECT_EQ(code([&](const Tensors& x, const Sized&) -> Tensors {
              last = x[0] + last;
              last.realize();
              return {last * 2};
            }),
            kRefused);
  Jit inner([](const Tensors& x, const Sized&) -> Tensors { return {x[0] + 1}; });
  for (int i = 0; i < 3; ++i) (void)inner({Tensor::from<float>({1, 2})});
  EXPECT_EQ(code([&](const Tensors& x, const Sized&) -> Tensors { return inner({x[0]}); }),
            kRefused);
}

// It would stay as it was when the step was recorded.
TEST_F(JitTest, WhatIsKeptUnrealisedCannotBeUsedLater) {
  Tensor kept;
  Jit step([&](const Tensors& x, const Sized&) -> Tensors {
    kept = x[0] * 2;
    return {x[0] + 1};
  });
  for (int i = 0; i < 4; ++i) {
    ExpectNear(step({Tensor::from<float>({1.0f * i})})[0], {i + 1.0});
    if (i < 2) ExpectNear(kept, {2.0 * i});
  }
  ExpectNear(kept, {2});  // realised before the step was sent again
  Jit another([&](const Tensors& x, const Sized&) -> Tensors {
    kept = x[0] * 2;
    return {x[0] + 1};
  });
  for (int i = 0; i < 4; ++i) ExpectNear(another({Tensor::from<float>({1.0f * i})})[0], {i + 1.0});
  for (const auto& use :
       {std::function([&] { kept.item(); }), std::function([&] { (void)(kept + 1); }),
        std::function([&] { kept.realize(); })}) {
    try {
      use();
      ADD_FAILURE() << "did not throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_TRUE(absl::StrContains(error.what(), "captured step")) << error.what();
    }
  }
  kept.assign(Tensor::from<float>({5}));
  ExpectNear(kept + 1, {6});
}

// Bytes that the step makes are those of the recording, and there for each call.
TEST_F(JitTest, TensorsMadeInsideOfNumbers) {
  Jit step([&](const Tensors& x, const Sized&) -> Tensors {
    return {x[0] * Tensor::from<float>({1, 2}) + Tensor::from<float>({3, 4})};
  });
  for (int i = 0; i < 5; ++i) {
    const double a = i, b = 2 * i + 1;
    ExpectNear(step({Tensor::from<float>({static_cast<float>(a), static_cast<float>(b)})})[0],
               {a + 3, 2 * b + 4});
  }
}

TEST_F(JitTest, AFailedRecordingIsNone) {
  bool fail = true;
  Tensor n = Tensor::from<float>({0}).state_();
  Jit step([&](const Tensors& x, const Sized&) -> Tensors {
    if (fail) (void)(x[0] + Tensor::zeros({7}));
    n.assign(n + 1);
    return {x[0] + n};
  });
  const Tensor x = Tensor::from<float>({1, 2});
  fail = false;
  (void)step({x});
  fail = true;
  EXPECT_FALSE(StatusOf([&] { (void)step({x}); }).ok());
  fail = false;
  EXPECT_FALSE(step.captured());
  ExpectNear(step({x})[0], {3, 4});
  EXPECT_TRUE(step.captured());
  ExpectNear(step({x})[0], {4, 5});
}

TEST_F(JitTest, NamesWhatDoesNotMatch) {
  Jit step([](const Tensors& x, const Sized&) -> Tensors { return {x[0] + x[1]}; });
  const Tensor x = Tensor::from<float>({1, 2}), y = Tensor::from<float>({3, 4});
  for (int i = 0; i < 2; ++i) (void)step({x, y});
  EXPECT_NE(MessageOf([&] {
              (void)step({x, Tensor::from<float>({1, 2, 3})});
            }).find("argument 1 is f32[3], recorded with f32[2]"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              (void)step({Tensor::from<int>({1, 2}), y});
            }).find("argument 0 is i32[2], recorded with f32[2]"),
            std::string::npos);
  EXPECT_EQ(StatusOf([&] { (void)step({x}); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { (void)step({x, x}); }).code(), absl::StatusCode::kInvalidArgument);
  const auto other = std::make_shared<FakeSession>();
  SetSession(other);
  EXPECT_EQ(StatusOf([&] { (void)step({x, y}); }).code(), absl::StatusCode::kFailedPrecondition);
  SetSession(session);
  ExpectNear(step({x, y})[0], {4, 6});
}

}  // namespace
}  // namespace outboard
