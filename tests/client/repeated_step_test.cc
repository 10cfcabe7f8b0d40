// Repeated steps: the bits of as many steps one after another, in one message; and what is refused,
// at its line, with everything left as it was.
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "client/capture/repeat.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "tests/client/client_test.h"
#include "tests/support/paths.h"
#include "wire/limits.h"

namespace outboard {
namespace {

using RepeatTest = ClientTest;
using Values = std::vector<double>;

TEST_F(RepeatTest, IsOneMessage) {
  Tensor n = Tensor::from<float>({0, 10}).state_();
  const auto step = [&] {
    n.assign(n + 1);
    return n * n;
  };
  const int64_t runs = session->runs;
  const Tensor squares = repeat(4, step);
  EXPECT_EQ(session->runs, runs + 1);
  EXPECT_EQ(session->fetches, 0);
  EXPECT_EQ(session->last.repeat, 4u);
  EXPECT_EQ(session->last.donate.size(), 1u) << "what is carried may be written over";
  EXPECT_EQ(squares.shape(), (Dims{4, 2}));
  ExpectNear(n, {4, 14});
  ExpectNear(squares, {1, 121, 4, 144, 9, 169, 16, 196});
  ExpectNear(repeat(1, step), {25, 225});
  EXPECT_EQ(repeat(1, step).shape(), (Dims{1, 2}));
  ExpectNear(n, {6, 16});
}

// The state is that of `steps` calls of a step, and what it returned; by one after another, or by
// repeats of `at_once`.
struct Outcome {
  std::vector<HostTensor> state, results;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A batch with everything that a training has: random rows, running means, weights, moments,
// dropout.
struct Training {
  nn::Linear hidden{6, 8}, out{8, 3};
  nn::BatchNorm2d norm{8};
  Tensor images, labels;
  std::unique_ptr<optim::Optimizer> optimiser;

  explicit Training(bool adam) {
    images = Tensor::rand({20, 6}).realize();
    labels = Tensor::randint({20}, 0, 3).realize();
    nn::StateDict state;
    Collect(state, "");
    if (adam)
      optimiser = std::make_unique<optim::AdamW>(nn::parameters(state), 0.01);
    else
      optimiser = std::make_unique<optim::SGD>(nn::parameters(state), 0.1, 0.9);
  }
  void Collect(nn::StateDict& state, const std::string& prefix) const {
    hidden.Collect(state, prefix + "hidden.");
    norm.Collect(state, prefix + "norm.");
    out.Collect(state, prefix + "out.");
  }
  Tensor Step(const Tensor& rows) {
    const TrainingMode training(true);
    Tensor loss;
    {
      const Tensor x = hidden(images[rows]).reshape({4, 8, 1, 1});
      const Tensor y = out(norm(x).relu().reshape({4, 8}).dropout(0.25));
      loss = y.sparse_categorical_crossentropy(labels[rows]);
      loss.backward();
    }
    optimiser->step({loss});
    return loss;
  }
  std::vector<HostTensor> State() const {
    nn::StateDict state;
    Collect(state, "");
    std::vector<HostTensor> values;
    for (const auto& [name, tensor] : state) values.push_back(tensor.to_host());
    return values;
  }
};

TEST_F(RepeatTest, ATrainingIsTheSameBits) {
  for (const bool adam : {false, true}) {
    const auto train = [&](const std::vector<int>& parts, bool by_index) {
      Tensor::manual_seed(11);
      Training training(adam);
      const Variable i("i", 0, 4);
      const auto random = [&] { return training.Step(Tensor::randint({4}, 0, 20)); };
      const auto indexed = [&](const SymInt& i) {
        return training.Step(Tensor::arange(4) + i * 4);
      };
      Outcome outcome;
      std::string losses;
      int done = 0;
      for (const int part : parts) {
        Tensor loss;
        if (part == 0)
          loss = by_index ? indexed(i.bind(done)) : random();
        else
          loss = by_index ? repeat(part, i.bind(done), indexed) : repeat(part, random);
        losses += loss.to_host().bytes;
        done += std::max(part, 1);
      }
      EXPECT_EQ(session->fetches, 0) << "losses come with the Run";
      session->fetches = 0;
      outcome.state = training.State();
      session->fetches = 0;
      outcome.results.push_back({DType::kF32, {done}, losses});
      outcome.results.push_back(Tensor::rand({2}).to_host());  // the random numbers go on alike
      return outcome;
    };
    for (const bool by_index : {false, true}) {
      const Outcome wanted = train({0, 0, 0, 0, 0}, by_index);
      const size_t graphs = session->graph_count();
      EXPECT_TRUE(train({5}, by_index) == wanted) << adam << by_index;
      EXPECT_TRUE(train({2, 0, 1, 1}, by_index) == wanted) << adam << by_index;
      EXPECT_EQ(session->graph_count(), graphs + 1) << "a repeated step is the step's graph; once, "
                                                       "with an axis, it is one more";
    }
  }
}

TEST_F(RepeatTest, IndexIsASizeAndANumber) {
  const Tensor data = Tensor::arange(12, DType::kF32).reshape({6, 2}).realize();
  Tensor total = Tensor::zeros({2}).contiguous().state_();
  const Variable i("batch", 0, 2);
  const Tensor rows = repeat(3, i.bind(0), [&](const SymInt& i) {
    const Tensor batch = data.slice(0, i * 2, (i + 1) * 2);
    total.assign(total + batch.sum(0) * (i + 1));
    return batch;
  });
  EXPECT_EQ(session->last.bindings.size(), 1u);
  ExpectNear(rows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(rows.shape(), (Dims{3, 2, 2}));
  ExpectNear(total, {2.0 * 1 + 10 * 2 + 18 * 3, 4.0 * 1 + 12 * 2 + 20 * 3});
}

TEST_F(RepeatTest, SeveralResultsAndNone) {
  Tensor n = Tensor::from<float>({1}).state_();
  const Tensor fixed = Tensor::from<float>({7});
  const std::vector<Tensor> results = repeat(3, [&] {
    n.assign(n * 2);
    const Tensor twice = n + n;
    return std::vector<Tensor>{n, twice, fixed, twice};
  });
  ExpectNear(results[0], {2, 4, 8});
  ExpectNear(results[1], {4, 8, 16});
  ExpectNear(results[2], {7, 7, 7});
  ExpectNear(results[3], {4, 8, 16});
  repeat(2, [&] { n.assign(n * 2); });
  ExpectNear(n, {32});
  ExpectNear(results[0], {2, 4, 8});
  repeat(2, [&] { (void)(n * 2); });  // nothing to do
  ExpectNear(n, {32});
}

// The program of docs/far-away.md, as it stands there.
void TheDocumentsProgram() {
  // clang-format off
const Tensor data = Tensor::arange(12, DType::kF32).reshape({6, 2}).realize();
Tensor total = Tensor::zeros({2}).contiguous().state_();
const Variable place("place", 0, 2);
const Tensor sums = repeat(3, place.bind(0), [&](const SymInt& i) {
  const Tensor batch = data.slice(0, i * 2, (i + 1) * 2);
  total.assign(total + batch.sum(0));
  return batch.sum();
});
for (const double sum : sums.to_vector<double>()) std::printf("%f\n", sum);
  // clang-format on
}

TEST_F(RepeatTest, TheDocumentRuns) {
  const auto text_of = [](const std::string& path) {
    std::ifstream file(test::SourceFile(path));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string document = text_of("docs/far-away.md");
  const size_t begin = document.find("```cpp\nconst Tensor data") + 7;
  const size_t end = document.find("```", begin);
  ASSERT_LT(begin, end);
  EXPECT_NE(text_of("tests/client/repeated_step_test.cc").find(document.substr(begin, end - begin)),
            std::string::npos);
  testing::internal::CaptureStdout();
  TheDocumentsProgram();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "6.000000\n22.000000\n38.000000\n");
}

// What is assigned and not read again is the last one's; what is read in another way than by its
// own tensor stays what it was.
TEST_F(RepeatTest, OnlyWhatIsReadIsCarried) {
  Tensor n = Tensor::from<float>({1}).state_(), last = Tensor::from<float>({0}).state_();
  const Tensor doubled = n * 2;  // lazy, of another tensor than what is assigned
  repeat(3, [&] {
    last.assign(doubled + 1);
    n.assign(5);
  });
  ExpectNear(last, {3});
  ExpectNear(n, {5});
  ExpectNear(doubled, {2});
}

// ---- random programs ----------------------------------------------------------------------------

// The same choices each time that it is called with the same seed.
std::vector<Tensor> RandomStep(uint64_t seed, std::vector<Tensor>& state) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  std::vector<Tensor> pool;
  const auto any = [&]() -> Tensor {
    const size_t i = below(state.size() + pool.size());
    return i < state.size() ? state[i] : pool[i - state.size()];
  };
  for (size_t line = 3 + below(12); line > 0; --line) {
    switch (below(8)) {
      case 0: pool.push_back(any() + any()); break;
      case 1: pool.push_back(any() * any() * 0.5); break;
      case 2: pool.push_back(any().sin() - 0.25); break;
      case 3: pool.push_back(any().relu() + any().flip(0)); break;
      case 4: pool.push_back(Tensor::rand({3}) - any()); break;
      case 5: pool.push_back(any().sum(0, true).expand({3}) * 0.125); break;
      default: state[below(state.size())].assign(any()); break;
    }
  }
  std::vector<Tensor> results;
  for (size_t n = below(3); n > 0; --n) results.push_back(any());
  return results;
}

Outcome RunRandom(uint64_t seed, int steps, bool repeated) {
  Tensor::manual_seed(seed);
  std::vector<Tensor> state;
  for (const double value : {0.5, -1.0, 2.0})
    state.push_back((Tensor::arange(3, DType::kF32) * 0.25 + value).contiguous().state_());
  const auto step = [&] { return RandomStep(seed, state); };
  Outcome outcome;
  if (repeated) {
    for (const Tensor& result : repeat(steps, step)) outcome.results.push_back(result.to_host());
  } else {
    for (int k = 0; k < steps; ++k) {
      const std::vector<Tensor> results = step();
      realize(results);
      outcome.results.resize(results.size());
      for (size_t i = 0; i < results.size(); ++i) {
        const HostTensor host = results[i].to_host();
        outcome.results[i].dtype = host.dtype;
        outcome.results[i].dims = {steps, 3};
        outcome.results[i].bytes += host.bytes;
      }
    }
  }
  for (const Tensor& tensor : state) outcome.state.push_back(tensor.to_host());
  outcome.state.push_back(Tensor::rand({1}).to_host());
  return outcome;
}

TEST_F(RepeatTest, RandomPrograms) {
  for (uint64_t seed = 1; seed <= 300; ++seed)
    for (const int steps : {1, 4})
      ASSERT_TRUE(RunRandom(seed, steps, true) == RunRandom(seed, steps, false))
          << "seed " << seed << ", " << steps << " steps";
}

// ---- what is refused ----------------------------------------------------------------------------

struct Mistake {
  const char* what;
  std::function<void()> program;
  absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
};

TEST_F(RepeatTest, Mistakes) {
  Tensor n = Tensor::from<float>({1, 2}).state_(), kept;
  Tensor w = Tensor::from<float>({1, 2}).requires_grad_();
  Tensor lazy = Tensor::zeros({2});
  const Tensor old = n * 3;
  optim::SGD sgd({w});
  const Variable i("index", 0, 5);
  const auto count = [&] { n.assign(n + 1); };
  using enum absl::StatusCode;
  const std::vector<Mistake> mistakes = {
      {"no times", [&] { repeat(0, count); }, kInvalidArgument},
      {"too often", [&] { repeat(int64_t{wire::kRepeatMax} + 1, count); }, kInvalidArgument},
      {"an index that leaves its range",
       [&] { repeat(4, i.bind(3), [&](const SymInt&) { count(); }); }, kInvalidArgument},
      {"an index that is a number", [&] { repeat(4, SymInt(3), [&](const SymInt&) { count(); }); },
       kInvalidArgument},
      {"an index that is computed",
       [&] { repeat(4, i.bind(0) + 1, [&](const SymInt&) { count(); }); }, kInvalidArgument},
      {"results of other shapes",
       [&] {
         repeat(4, i.bind(0), [&](const SymInt& i) {
           count();
           return Tensor::arange(6).slice(0, 0, i);
         });
       },
       kInvalidArgument},
      {"a value that is read", [&] { repeat(2, [&] { count(), n.to_host(); }); }},
      {"a number that is read", [&] { repeat(2, [&] { count(), (n.sum() * 2).item(); }); }},
      {"a value that is asked for", [&] { repeat(2, [&] { count(), n.fetch(); }); }},
      {"several that are", [&] { repeat(2, [&] {
                                   count(), fetch({n, old});
                                 }); }},
      {"a second realize", [&] { repeat(2, [&] { count(), n.realize(), n.realize(); }); }},
      {"a repeat in a repeat", [&] { repeat(2, [&] { repeat(2, count); }); }},
      {"manual_seed", [&] { repeat(2, [&] { count(), Tensor::manual_seed(3); }); }},
      {"a tensor that is kept", [&] { repeat(2, [&] { count(), kept = n * 2; }); }},
      {"one that is returned and kept", [&] { repeat(2, [&] { return count(), kept = n * 2; }); }},
      {"one that is made anew from itself", [&] { repeat(2, [&] { lazy += n, count(); }); }},
      {"an assign to what was not realised",
       [&] { repeat(2, [&] { count(), lazy.assign(lazy + 1); }); }},
      {"a gradient that is left", [&] { repeat(2, [&] { count(), (w * w).sum().backward(); }); }},
      {"a parameter that is read after the step",
       [&] {
         repeat(2, [&] {
           count(), (w * w).sum().backward();
           sgd.step();
           return w.sum();
         });
       }},
      {"state that the step makes",
       [&] {
         repeat(2, [&] { return count(), Tensor::zeros({2}).contiguous().requires_grad_() + 1; });
       }},
      {"an empty tensor", [&] { repeat(2, [&] { return count(), Tensor(); }); }},
      {"what was computed from the state before",
       [&] { repeat(2, [&] { return count(), n + old; }); }},
      {"an error of the step's own",
       [&] { repeat(2, [&] { return count(), n + Tensor::zeros({3}); }); }, kInvalidArgument},
  };
  Tensor::rand({1}).realize();
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.what);
    const int64_t runs = session->runs, live = session->live_buffers();
    const absl::Status status = StatusOf(mistake.program);
    EXPECT_EQ(status.code(), mistake.code) << status;
    EXPECT_EQ(session->runs, runs) << "nothing was sent";
    kept = {};
    lazy = Tensor::zeros({2});
    EXPECT_EQ(session->live_buffers(), live);
    EXPECT_TRUE(n.realized()) << "as it was";
    EXPECT_TRUE(w.grad().empty());
  }
  ExpectNear(n, {1, 2});
  ExpectNear(w, {1, 2});
  ExpectNear(old, {3, 6});
  repeat(2, count);
  ExpectNear(n, {3, 4});
  (w * w).sum().backward();
  EXPECT_EQ(StatusOf([&] { repeat(2, count); }).code(), kFailedPrecondition) << "a gradient before";
}

// Two tensors of one buffer: assigned is one of them, read are both.
TEST_F(RepeatTest, ABufferOfTwoTensors) {
  Tensor n = Tensor::from<float>({1});
  Tensor alias = n.reshape({1, 1}).reshape({1});
  alias.realize();  // takes the buffer of n
  const absl::Status status = StatusOf([&] { repeat(2, [&] { n.assign(n + alias); }); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  ExpectNear(n, {1});
  ExpectNear(repeat(3, [&] { return n.assign(n + 1), n + 0; }), {2, 3, 4});
  ExpectNear(alias, {1});
}

TEST_F(RepeatTest, AFailureIsThatOfAll) {
  Tensor n = Tensor::from<float>({1}).state_();
  session->fail_next_run = absl::ResourceExhaustedError("in repetition 2 of 3: no memory");
  const Tensor rows = repeat(3, [&] {
    n.assign(n + 1);
    return n * 2;
  });
  EXPECT_EQ(StatusOf([&] { rows.to_host(); }).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusOf([&] { n.to_host(); }).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard
