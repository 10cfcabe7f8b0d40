// Repeated steps on real engines: the weights and losses of K steps in one message are, to the last
// bit, those of K steps; in this process, and through a gateway and its worker.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "client/capture/repeat.h"
#include "client/examples/gpt.h"
#include "client/session/current_session.h"
#include "tests/e2e/in_process.h"
#include "tests/e2e/small_training.h"
#include "tests/support/cluster.h"

namespace outboard {
namespace {

std::string BytesOf(const nn::StateDict& state) {
  std::string bytes;
  for (const auto& [name, tensor] : state) bytes += tensor.to_host().bytes;
  return bytes;
}

// A training that is made anew, by steps: its losses and, in the end, its weights.
struct Program {
  std::function<Tensor()> step;
  std::function<std::string()> weights;
};
using MakeProgram = std::function<Program()>;

Program SmallProgram() {
  const auto training = std::make_shared<test::SmallTraining>();
  return {[=] { return training->Step(); }, [=] { return training->Weights(); }};
}

Program GptProgram() {
  Tensor::manual_seed(5);
  std::vector<uint8_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(static_cast<uint8_t>(i * i % 11));
  const auto trainer = std::make_shared<examples::GptTrainer>(
      Tensor::from<uint8_t>(text),
      examples::GptOptions{.vocabulary = 11, .layers = 1, .width = 8, .heads = 2, .context = 6}, 3);
  return {[=] { return trainer->Step(); }, [=] { return BytesOf(nn::state_dict(trainer->net())); }};
}

// In parts of so many steps; 0: one, not repeated.
std::pair<std::string, std::string> Train(const MakeProgram& make, const std::vector<int>& parts) {
  const Program program = make();
  std::string losses;
  for (const int part : parts) {
    const Tensor loss = part == 0 ? program.step() : repeat(part, program.step);
    losses += loss.to_host().bytes;
  }
  return {losses, program.weights()};
}

class RepeatInProcess : public ::testing::TestWithParam<test::EngineKind> {
 protected:
  void SetUp() override { SetSession(test::InProcessSession(GetParam())); }
  void TearDown() override {
    Tensor::manual_seed(7);
    SetSession(nullptr);
  }
  static session::Stats Stats() {
    EXPECT_TRUE(SessionIfConnected()->Sync().ok());
    return SessionIfConnected()->stats();
  }
};

TEST_P(RepeatInProcess, SmallTrainingHasTheSameBits) {
  const auto wanted = Train(SmallProgram, {0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(Train(SmallProgram, {0, 6}), wanted);
  EXPECT_EQ(Train(SmallProgram, {3, 1, 0, 2}), wanted);
}

TEST_P(RepeatInProcess, GptHasTheSameBits) {
  const auto wanted = Train(GptProgram, {0, 0, 0, 0});
  EXPECT_EQ(Train(GptProgram, {0, 3}), wanted);
  EXPECT_EQ(Train(GptProgram, {4}), wanted);
}

// Batch after batch of data that lies in the cloud.
TEST_P(RepeatInProcess, CursorHasTheSameBits) {
  const auto train = [](bool repeated) {
    Tensor::manual_seed(3);
    const Tensor data = Tensor::rand({24, 5}).realize();
    Tensor w = Tensor::zeros({5, 1}).requires_grad_();
    optim::SGD sgd({w}, 0.1, 0.9);
    const Variable i("batch", 0, 5);
    const auto step = [&](const SymInt& i) {
      Tensor loss = (data.slice(0, i * 4, (i + 1) * 4).matmul(w) - 1).square().mean();
      loss.backward();
      sgd.step({loss});
      return loss;
    };
    std::string losses;
    if (repeated)
      losses = repeat(6, i.bind(0), step).to_host().bytes;
    else
      for (int64_t k = 0; k < 6; ++k) losses += step(i.bind(k)).to_host().bytes;
    return std::make_pair(losses, w.to_host().bytes);
  };
  EXPECT_EQ(train(true), train(false));
}

// All of it is one item, one plan, and no wait.
TEST_P(RepeatInProcess, IsOneRunWithoutAWait) {
  Tensor n = Tensor::from<int64_t>({0}).state_();
  const auto step = [&] {
    n.assign(n + 1);
    return n * 2;
  };
  repeat(2, step);
  const session::Stats before = Stats();
  const TensorFuture rows = repeat(1000, step).fetch();
  EXPECT_EQ(SessionIfConnected()->stats().blocking_round_trips, before.blocking_round_trips);
  const std::vector<int64_t> values = rows.to_vector<int64_t>();
  const session::Stats after = Stats();
  EXPECT_EQ(after.runs, before.runs + 1);
  EXPECT_EQ(after.steps, before.steps + 1000);
  ASSERT_EQ(values.size(), 1000u);
  for (int64_t k = 0; k < 1000; ++k) EXPECT_EQ(values[k], 2 * (k + 3));
  EXPECT_EQ(n.item<int64_t>(), 1002);
  if (GetParam() == test::EngineKind::kCompiled) {
    EXPECT_EQ(after.kernels_launched - before.kernels_launched, 1000u);
  }
}

TEST_P(RepeatInProcess, AFailureNamesTheStep) {
  Tensor n = Tensor::zeros({int64_t{1} << 18}).contiguous().state_();
  const Tensor rows = repeat(1 << 19, [&] {  // 512 GiB of rows: refused before any of it is there
    n.assign(n + 1);
    return n + 0;
  });
  try {
    rows.to_host();
    FAIL() << "there is no memory for it";
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted) << error.what();
    EXPECT_NE(std::string(error.what()).find("repeat_e2e_test.cc"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, RepeatInProcess,
                         ::testing::Values(test::EngineKind::kReference,
                                           test::EngineKind::kCompiled),
                         [](const auto& info) {
                           return info.param == test::EngineKind::kReference ? "reference"
                                                                             : "compiled";
                         });

TEST(RepeatThroughAGateway, HasTheSameBitsInOneFrame) {
  test::Cluster cluster;
  cluster.StartUp(1);
  auto session = Session::Connect(cluster.Options());
  ASSERT_TRUE(session.ok()) << session.status();
  SetSession(*std::move(session));
  const auto wanted = Train(SmallProgram, {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(Train(SmallProgram, {0, 2, 3}), wanted);
  {
    test::SmallTraining training;
    training.Step();
    const auto step = [&] { return training.Step(); };
    const session::Stats before = SessionIfConnected()->stats();
    const TensorFuture first = repeat(5, step).fetch(), second = repeat(5, step).fetch();
    const session::Stats after = SessionIfConnected()->stats();
    EXPECT_EQ(after.runs, before.runs + 2);
    EXPECT_EQ(after.blocking_round_trips, before.blocking_round_trips);
    EXPECT_EQ(first.to_host().dims, (std::vector<int64_t>{5}));
    EXPECT_LT(second.to_vector<double>().back(), first.to_vector<double>().front());
  }
  EXPECT_TRUE(CloseSession().ok());
  SetSession(nullptr);
}

}  // namespace
}  // namespace outboard
